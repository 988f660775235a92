"""Operators with a split form, which works on blocks of a split dim, and how to write it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from shardc.dialects.aten.call import OpCall
from shardc.passes.propagate.split import extrema, norms, scans, softmax, topk
from shardc.passes.propagate.split.writer import has_places

Write = Callable[..., Sequence[ir.Value]]
"""``(writer, *arguments of the call) -> its results``."""
Fits = Callable[[OpCall, int], bool]
"""Returns whether the form pays for a call that is split so many ways."""


def _always(call: OpCall, ways: int) -> bool:
    return True


def _over_a_dim(call: OpCall, ways: int) -> bool:
    """Return whether a call has a dim whose indices fit in 32 bits."""
    return call["dim"] is not None and has_places(call)


@dataclass(frozen=True)
class Form:
    """The split form of an operator.

    ``widens``: floats are computed in at least f32, as in the native operators. ``takes_blocks``: its calls
    see the devices' blocks, so only space axes may split the dim. ``scans``: it has a variant from the end
    (``backwards``). ``beats_move``: whether the form sends less than splitting another dim meanwhile.
    """

    write: Write
    widens: bool = True
    takes_blocks: bool = False
    fits: Fits = _always
    scans: bool = False
    beats_move: Fits = _always


_SCANS = {
    "aten.cumsum": scans.cumsum,
    "aten.cumprod": scans.cumprod,
    "aten.logcumsumexp": scans.logcumsumexp,
}
_EXTREMA = {
    "aten.max.dim": extrema.max_dim,
    "aten.min.dim": extrema.min_dim,
    "aten.argmax": extrema.argmax,
    "aten.argmin": extrema.argmin,
}
FORMS: dict[str, Form] = {
    "aten._log_softmax": Form(softmax.log_softmax),
    "aten._log_softmax_backward_data": Form(softmax.log_softmax_backward),
    "aten._softmax": Form(softmax.softmax),
    "aten._softmax_backward_data": Form(softmax.softmax_backward),
    "aten.logsumexp": Form(softmax.logsumexp),
    "aten.native_layer_norm": Form(norms.layer_norm),
    "aten.native_layer_norm_backward": Form(norms.layer_norm_backward),
    "aten.native_group_norm": Form(norms.group_norm),
    "aten.native_group_norm_backward": Form(norms.group_norm_backward),
    "aten.topk": Form(topk.topk, False, True, fits=topk.saves, beats_move=topk.beats_move),
    **{target: Form(write, widens=False, fits=_over_a_dim) for target, write in _EXTREMA.items()},
    **{target: Form(write, takes_blocks=True, scans=True) for target, write in _SCANS.items()},
}
