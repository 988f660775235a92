"""Patterns of a linear layer with a cross entropy, forward and backward, for both front ends.

Losses are decomposed while a step is traced, and so is each ``nll_loss`` in a graph of ``torch.compile``.
Forward takes one class per row of a log_softmax with ``gather``; backward begins with a ``scatter``. Label
smoothing adds the sum over all classes and its expanded gradient. Class weights multiply both.

A log_softmax is a call or its steps. With sharded classes (``torch-split-reductions``) ``tops`` and ``log``
combine the devices' ``top`` and ``sum``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.bodies.captures import captured
from shardc.passes.fuse.linear_loss.calls import LINKS, untwisted
from shardc.passes.fuse.linear_loss.pattern import ANY, Apply, As, Behind, Either, Later, Pattern, Seen, Typed
from shardc.passes.fuse.reading.values import TURNS

SOFTMAX, GRADIENT, LARGEST = "aten._log_softmax", "aten._log_softmax_backward_data", "aten.amax"
PRODUCT, PRODUCT_WITH_BIAS = "aten.mm", "aten.addmm"
SUM, SCATTER_ROWS = "aten.sum.dim_IntList", "aten.scatter.src"


@dataclass(frozen=True)
class Role:
    """Value of a loss that is computed from the value named ``source``."""

    name: str
    source: str
    pattern: Pattern


def call(
    target: str, *operands: Pattern, test: Callable[[OpCall], bool] = lambda _: True, swaps: bool = False
) -> Apply:
    return Apply((target,), operands, test, swaps)


def either(*forms: Pattern) -> Either:
    return Either(forms)


def _of_rows(spec: OpCall) -> bool:
    """Return whether a softmax is over each row of a matrix."""
    (made,) = spec.results
    return made is not None and len(made.shape) == 2 and spec["dim"] % 2 == 1


def _sums(dim: int, keepdim: tuple[bool, ...]) -> Callable[[OpCall], bool]:
    """Return a test for reductions of a matrix over ``dim`` that keep its dtype."""

    def test(spec: OpCall) -> bool:
        (made,), given = spec.results, spec["self"]
        dims = tuple(d % 2 for d in spec["dim"] or ())
        is_matrix = made is not None and len(given.shape) == 2 and made.dtype == given.dtype
        return is_matrix and dims == (dim,) and spec["keepdim"] in keepdim

    return test


def _plain(spec: OpCall) -> bool:
    return spec["alpha"] == 1


def _unscaled(spec: OpCall) -> bool:
    return spec["beta"] == spec["alpha"] == 1


def _less_number(spec: OpCall) -> bool:
    """Return whether a call subtracts one number per row from a matrix."""
    same = spec["other"].dtype == spec["self"].dtype
    return _plain(spec) and same and spec["other"].shape == (spec["self"].shape[0], 1)


def _at_rows(spec: OpCall) -> bool:
    """Return whether a gather or scatter has one class per row."""
    rows, index = spec["self"].shape[0], spec["index"]
    other = spec["src"].shape if spec.target == SCATTER_ROWS else index.shape
    sparse = spec.target == "aten.gather" and spec["sparse_grad"]
    is_row = spec["dim"] % 2 == 1 and index.shape == other == (rows, 1)
    return is_row and not sparse and index.dtype == torch.int64


def _is_number(type_: TensorType, logp: TensorType) -> bool:
    """Return whether a tensor has one number for each row, or for all rows."""
    return type_.shape in ((logp.shape[0], 1), (1, 1), (1,), ())


def _is_share(type_: TensorType, logp: TensorType) -> bool:
    """Return whether a tensor has one number for each row, for each class, or for all."""
    return _is_number(type_, logp) or _is_weights(type_, logp)


def _is_weights(type_: TensorType, logp: TensorType) -> bool:
    return type_.shape == (1, logp.shape[1])


_NUMBER = Typed("logp", _is_number)
_AGAIN = Later(lambda: _SHARE)
_SHARE: Pattern = either(
    Typed("logp", _is_share),
    call("aten.where.self", _NUMBER, _AGAIN, _AGAIN),
    call("aten.mul.Tensor", _AGAIN, _AGAIN),
)
"""Factor for each row and class, from factors of rows or classes: class weights, 0 for ignored rows."""

_LINEAR = either(
    call(PRODUCT, "rows", "turned"), call(PRODUCT_WITH_BIAS, "bias", "rows", "turned", test=_unscaled)
)
LOGITS: Pattern = Behind(LINKS, As("product", _LINEAR))

_TOP = call(LARGEST, "logits", test=_sums(1, (True,)))
_RAISED = call("aten.exp", "shifted")
_TOTAL = call(SUM, _RAISED, test=_sums(1, (True,)))
_SHIFTED = As("shifted", call("aten.sub.Tensor", "logits", _TOP, test=_less_number))
SOFTMAXES: tuple[tuple[Role, ...], ...] = (
    (Role("logp", "logits", call(SOFTMAX, "logits", test=_of_rows)),),
    (Role("logp", "logits", call("aten.sub.Tensor", _SHIFTED, call("aten.log", _TOTAL), test=_less_number)),),
    (
        Role("top", "logits", _TOP),
        Role("shifted", "logits", call("aten.sub.Tensor", "logits", "tops", test=_less_number)),
        Role("sum", "shifted", _TOTAL),
        Role("logp", "shifted", call("aten.sub.Tensor", "shifted", "log", test=_less_number)),
    ),
)

_LOGP = either("logp", call("aten._to_copy", "logp"))
_CLASS_WEIGHTS = As("class_weights", Typed("logp", _is_weights))
_WEIGHTED = As("weighted", call("aten.mul.Tensor", _LOGP, _CLASS_WEIGHTS, swaps=True))
LOSS: tuple[Role, ...] = (
    Role("picked", "logp", call("aten.gather", either(_LOGP, _WEIGHTED), "index", test=_at_rows)),
    Role("total", "logp", call(SUM, _LOGP, test=_sums(1, (False, True)))),
)

_ZEROS = call("aten.full", test=lambda spec: spec["fill_value"] == 0)
_NO_GRADIENT = Seen(captured, either(_ZEROS, call("aten.zeros"), call("aten.zeros_like")))
_HIT = either(
    call("aten.scatter.value", As("zeros", _NO_GRADIENT), "hit", test=_at_rows),
    call(SCATTER_ROWS, As("zeros", _NO_GRADIENT), "hit", "source", test=_at_rows),
)
_SCALED = As("scaled", call("aten.mul.Tensor", As("scatter", _HIT), As("share", _SHARE), swaps=True))
_SPREAD = call("aten.expand", As("spread", _NUMBER))
_GIVEN = As("given", either(_SCALED, call("aten.add.Tensor", _SCALED, _SPREAD, test=_plain, swaps=True)))
_GRADIENT = call(GRADIENT, _GIVEN, _LOGP, test=_of_rows)
_FALL = call("aten.mul.Tensor", call("aten.exp", _LOGP), As("sums", _NUMBER), swaps=True)
_SLOPES = Behind(LINKS, "slopes")
BACKWARD: tuple[Role, ...] = (
    Role("slopes", "logp", either(_GRADIENT, call("aten.sub.Tensor", _GIVEN, _FALL, test=_plain))),
    Role("kept", "zeros", call("aten.gather", "zeros", ANY, test=_at_rows)),
    Role("added", "given", call(SUM, "given", test=_sums(1, (True,)))),
    Role("drows", "slopes", call(PRODUCT, _SLOPES, Seen(untwisted, "again"))),
    Role("dweight", "slopes", call(PRODUCT, Apply(tuple(TURNS), (_SLOPES,)), "rows")),
    Role("dbias", "slopes", call(SUM, _SLOPES, test=_sums(0, (True, False)))),
)
MADE = ("picked", "total", "top", "sum", "kept", "added", "drows", "dweight", "dbias")
"""Values that other calls may read."""
