"""Rules of pooling and of nearest-neighbour resampling, on images [..., pixels].

Leading dims (batch, channels) may be split. A dim of pixels may be split if it has exactly stride times as
many pixels as the pooled image: it is ``(y s)``, and y in the pooled image. Overlapping windows get a halo of
the neighbouring blocks. Windows that do not overlap (``upsample_nearest`` by an integer factor, adaptive
pooling with equal windows) need no exchange. Other dims of pixels stay whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import inf
from typing import Any

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import parameters
from shardc.dialects.rules.pointwise import results_of
from shardc.dialects.rules.rule import Dim, Dims, Local, Lower, Rule, emit_with, rule_for
from shardc.dialects.rules.spatial.neighbours import Halo, Windows, setting_at
from shardc.dialects.rules.spatial.pixel_numbers import Block, renumbered

# Number of spatial dims -> operators linear in their first operand: averages, resampling, gradients.
LINEAR = {
    1: """
        avg_pool1d upsample_nearest1d upsample_nearest1d.vec upsample_nearest1d_backward
        _upsample_nearest_exact1d _upsample_nearest_exact1d_backward
    """,
    2: """
        avg_pool2d avg_pool2d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward
        max_pool2d_with_indices_backward adaptive_max_pool2d_backward upsample_nearest2d
        upsample_nearest2d.vec upsample_nearest2d_backward _upsample_nearest_exact2d
        _upsample_nearest_exact2d_backward
    """,
    3: """
        avg_pool3d avg_pool3d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
        max_pool3d_with_indices_backward adaptive_max_pool3d_backward upsample_nearest3d
        upsample_nearest3d.vec upsample_nearest3d_backward
    """,
}
MAXIMA = {2: "max_pool2d_with_indices adaptive_max_pool2d", 3: "max_pool3d_with_indices adaptive_max_pool3d"}
_EQUAL_WINDOWS = ("upsample_nearest", "_upsample_nearest", "_adaptive_avg_pool", "adaptive_max_pool")
"""Operators without window arguments, whose windows are equal if sizes divide."""


@dataclass(frozen=True)
class Pixels:
    """One spatial dim ``d`` of a call: ``large`` pixels on one side, ``small`` on the other."""

    d: int
    large: int
    small: int
    windows: Windows | None
    """None if equal blocks of one side do not correspond to equal blocks of the other side."""

    @property
    def factors(self) -> tuple[Dim, Dim]:
        """The factors of the large side and of the small side."""
        if self.windows is not None:
            made = [f"y{self.d}"] if self.small > 1 else []
            return (*made, *([f"s{self.d}"] if self.windows.step > 1 else [])), tuple(made)
        same = self.large == self.small
        return (f"a{self.d}",), (f"a{self.d}" if same else f"b{self.d}",)

    @property
    def sizes(self) -> dict[str, int]:
        if self.windows is None:
            (large,), (small,) = self.factors
            return {large: self.large, small: self.small}
        return dict(zip((f"y{self.d}", f"s{self.d}"), (self.small, self.windows.step), strict=True))

    @property
    def trades(self) -> bool:
        return self.windows is not None and not self.windows.patch


def _pixels(call: OpCall, spatial: int) -> tuple[Pixels, ...]:
    shapes = [t.shape[-spatial:] for t in (*call.tensors, *results_of(call))]
    pairs = [(max(sizes), min(sizes)) for sizes in zip(*shapes, strict=True)]
    return tuple(Pixels(d, *pair, _windows(call, d, *pair)) for d, pair in enumerate(pairs))


def _windows(call: OpCall, d: int, large: int, small: int) -> Windows | None:
    """Return the windows of a dim, or None if its blocks do not correspond."""
    name = call.target.removeprefix("aten.")
    if name.startswith(("avg_pool", "max_pool")):
        given = {n: a for (n, *_), a in zip(parameters(call.target), call.args, strict=True)}
        size = setting_at(given["kernel_size"], d)
        step = setting_at(given["stride"] or given["kernel_size"], d)
        margin = setting_at(given["padding"], d)
        found = Windows(large, small, size, step, margin, setting_at(given.get("dilation", (1,)), d))
        averages = name.startswith("avg_pool") and not given.get("divisor_override")
        uneven = averages and _divides_by_fewer(given, found)
        return found if (found.patch or found.aligned) and not uneven else None
    if name.startswith(_EQUAL_WINDOWS) and small and large % small == 0:
        return Windows(large, small, large // small, large // small, 0)
    return None


def _divides_by_fewer(given: Mapping[str, Any], windows: Windows) -> bool:
    """Return whether an average at an edge divides by fewer elements.

    That is so if padding is not counted, or a last window of ``ceil_mode`` ends outside the padding.
    """
    uncounted = windows.margin > 0 and not given.get("count_include_pad", True)
    return uncounted or windows.after > windows.margin


def _rule(call: OpCall, spatial: int, linear: tuple[frozenset[int], ...]) -> Rule:
    pixels = _pixels(call, spatial)
    return rule_of(call, pixels, linear, partial(_local, pixels))


def rule_of(call: OpCall, pixels: Sequence[Pixels], linear: tuple[frozenset[int], ...], lower: Lower) -> Rule:
    """Return the rule of tensors ``[n0, n1, ..., pixels]``, each with the pixels of the large or small
    side.
    """
    spatial, tensors = len(pixels), (*call.tensors, *results_of(call))
    sizes: dict[str, int] = {}
    dims: list[Dims] = []
    for tensor in tensors:
        leading = tensor.shape[:-spatial]
        sizes |= {f"n{i}": size for i, size in enumerate(leading)}
        sides = zip(pixels, tensor.shape[-spatial:], strict=True)
        own = (p.factors[0 if size == p.large else 1] for p, size in sides)
        dims.append((*((f"n{i}",) for i in range(len(leading))), *own))
    used = {f for each in dims for dim in each for f in dim}
    sizes |= {f: size for p in pixels for f, size in p.sizes.items() if f in used}
    free = {f"y{p.d}" for p in pixels if p.windows is not None}
    count = len(call.tensors)
    return Rule(
        tuple(dims[:count]),
        tuple(dims[count:]),
        sizes,
        replicate=frozenset(f for f in sizes if not f.startswith("n") and f not in free),
        linear=linear,
        lower=lower,
        neutral=dict.fromkeys(free & used) if "max_pool" in call.target else {},
        traded=frozenset(f"y{p.d}" for p in pixels if p.trades) & used,
    )


def _local(pixels: tuple[Pixels, ...], local: Local) -> Sequence[object]:
    """Call the operator on blocks with local sizes, and with halos if windows reach into other blocks."""
    names = [name for name, _, _ in parameters(local.spec.target)]
    cut = [p for p in pixels if p.windows is not None and p.small > 1 and local.ways(f"y{p.d}") > 1]
    numbered = "adaptive_max_pool" in local.spec.target
    if ("kernel_size" in names or numbered) and cut:
        return _Pooling(pixels, cut, local).made()
    changed: dict[str, object] = {}
    if "input_size" in names:
        changed["input_size"] = results_of(local)[0].shape
    if cut and "output_size" in names and local.spec["output_size"] is not None:
        blocks = {p.d: local.size(f"y{p.d}") for p in cut}
        backward = local.spec.target.endswith("_backward")
        side = (local.spec.tensors[0] if backward else results_of(local.spec)[0]).shape[-len(pixels) :]
        sizes = zip(pixels, side, strict=True)
        changed["output_size"] = tuple(blocks.get(p.d, n) * _copies(p, n, blocks) for p, n in sizes)
    made = emit_with(local, **changed)
    return list(made) if isinstance(made, tuple) else [made]


def _copies(p: Pixels, size: int, cut: Mapping[int, int]) -> int:
    """Return how many pixels of a side of this size belong to each window of a split dim; else 1."""
    return size // p.small if p.d in cut else 1


class _Pooling:
    """A rank's pooling with split pixels. Backward also computes the gradients of its halos."""

    def __init__(self, pixels: tuple[Pixels, ...], cut: Sequence[Pixels], local: Local) -> None:
        self._local, self._rank = local, len(results_of(local)[0].shape)
        self._large = [p.large for p in pixels]
        self._extended = list(self._large)
        self._halos: dict[int, Halo] = {}
        for p in cut:
            assert p.windows is not None
            dim = self._rank - len(pixels) + p.d
            halo = self._halos[p.d] = p.windows.halo(f"y{p.d}", dim, local.size(f"y{p.d}"))
            self._extended[p.d] = halo.before + halo.size + halo.after
        self._steps = {p.d: p.windows.step for p in cut if p.windows is not None}
        self._changed = self._settings(len(pixels))

    def _settings(self, spatial: int) -> dict[str, object]:
        """Return changed settings: no padding in dims with halos, and local output sizes of equal windows."""
        names = [name for name, _, _ in parameters(self._local.spec.target)]
        if "output_size" in names:
            return {"output_size": results_of(self._local)[0].shape[-spatial:]}
        if "padding" not in names:
            return {}
        padding = (setting_at(self._local.spec["padding"], d) for d in range(spatial))
        return {"padding": tuple(0 if d in self._halos else margin for d, margin in enumerate(padding))}

    def made(self) -> Sequence[object]:
        local, is_maximum = self._local, "max_pool" in self._local.spec.target
        if local.spec.target.endswith("_backward"):
            return [self._gradient()]
        outside = _least(local.spec["self"].dtype) if is_maximum else 0.0
        halos = self._halos.values()
        x = reduce(lambda x, halo: halo.extended(local, x, outside), halos, local.args[0])
        made = emit_with(local, **self._changed, self=x)
        return [made[0], self._renumbered(made[1], self._extended, self._large, 1)] if is_maximum else [made]

    def _gradient(self) -> object:
        """Compute the gradient. The operator reads only the shape of ``self``."""
        local, changed = self._local, dict(self._changed)
        if self._extended != [halo.size for halo in self._halos.values()]:
            made = results_of(local)[0].shape[: -len(self._extended)]
            options = (None, None, None, None)
            changed["self"] = local.emit("aten.new_empty", local.args[1], (*made, *self._extended), *options)
        if "indices" in (name for name, _, _ in parameters(local.spec.target)):
            changed["indices"] = self._renumbered(local.args[-1], self._large, self._extended, -1)
        grad = emit_with(local, **changed)
        return reduce(lambda x, halo: halo.returned(local, x), reversed(self._halos.values()), grad)

    def _renumbered(self, index: Any, have: list[int], want: list[int], sign: int) -> Any:
        blocks = {d: Block(h.factor, self._steps[d], -h.before) for d, h in self._halos.items()}
        return renumbered(self._local, index, have, want, blocks, sign)


def _least(dtype: torch.dtype) -> float:
    return -inf if dtype.is_floating_point else torch.iinfo(dtype).min


for _table, _linear in ((LINEAR, (frozenset({0}),)), (MAXIMA, ())):
    for _spatial, _names in _table.items():
        rule_for(*(f"aten.{n}" for n in _names.split()))(partial(_rule, spatial=_spatial, linear=_linear))
