"""Rules of linear, bilinear, bicubic and trilinear resampling and their gradients.

If x pixels become y pixels, with b their greatest common divisor, a dim ``(b p)`` becomes ``(b q)``. Output
pixel o reads the input pixels around ``(o + 0.5) p / q - 0.5``. So all blocks of b read the same number of
their neighbours' pixels; beyond the edges the outermost pixels are repeated. A dim stays whole if corners are
aligned, if a scale is not the ratio of the sizes, or if these have no common divisor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import gcd, isclose
from typing import Any

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import parameters
from shardc.dialects.rules.pointwise import FIRST, Factors, results_of
from shardc.dialects.rules.rule import Dim, Local, Rule, emit_with, rule_for
from shardc.dialects.rules.spatial.neighbours import part
from shardc.dialects.rules.spatial.rows import Rows

KINDS = {"linear1d": 1, "bilinear2d": 2, "bicubic2d": 2, "trilinear3d": 3}
"""Kind -> number of spatial dims."""
RESAMPLING = tuple(f"aten.upsample_{k}{form}" for k in KINDS for form in ("", ".vec", "_backward"))
_BESIDE = {"bicubic2d": 2}
"""Kind -> number of input pixels on each side that an output pixel reads; default 1."""


@dataclass(frozen=True)
class _Resampled:
    """A dim whose blocks of ``p`` pixels become blocks of ``q``.

    ``blocks`` is the blocks' factor, or (). ``beside`` is the number of pixels on each side of a position
    that have a weight.
    """

    dim: int
    p: int
    q: int
    beside: int
    blocks: Dim

    @property
    def moves(self) -> bool:
        return self.p != self.q

    def reach(self, count: int) -> tuple[int, int]:
        """Return how many input pixels before and after ``count`` blocks their output reads."""
        low = (self.p - self.q) // (2 * self.q) + 1 - self.beside
        last = ((2 * count * self.q - 1) * self.p - self.q) // (2 * self.q) + self.beside
        return max(0, -low), max(0, last + 1 - count * self.p)


def _kind(call: OpCall) -> tuple[str, bool]:
    """Return the kind, and whether the call is a gradient."""
    name = call.target.removeprefix("aten.upsample_").removesuffix(".vec")
    return name.removesuffix("_backward"), name.endswith("_backward")


@rule_for(*RESAMPLING)
def resampling(call: OpCall) -> Rule:
    """Rule of ``[n, c, (b p), ...] -> [n, c, (b q), ...]``, which is linear."""
    kind, backward = _kind(call)
    given, made = (call.tensors[0].shape, call.result.shape)[:: -1 if backward else 1]
    first, factors = len(given) - KINDS[kind], Factors()
    leading = factors.shape(given[:first])
    dims: list[tuple[Dim, Dim]] = []
    found: list[_Resampled] = []
    for d, (x, y) in enumerate(zip(given[first:], made[first:], strict=True)):
        common = gcd(x, y) if _fits(call, d, x, y) else 1
        blocks, p, q = factors.new(common), x // common, y // common
        dims.append((blocks + factors.whole(p), blocks + factors.whole(q)))
        found.append(_Resampled(first + d, p, q, _BESIDE.get(kind, 1), blocks))
    small, large = ((*leading, *side) for side in zip(*dims, strict=True))
    operand, result = (large, small) if backward else (small, large)
    rule = factors.rule(call, (operand,), (result,), FIRST, partial(_local, tuple(found)))
    # Dims are not padded: with equal sizes a pixel's neighbours have weight 0, but are still read.
    unpadded = {f: None for r in found for f in r.blocks}
    traded = frozenset(f for r in found if r.moves for f in r.blocks)
    return replace(rule, traded=traded, neutral=unpadded)


def _fits(call: OpCall, d: int, x: int, y: int) -> bool:
    """Return whether equal blocks of ``x`` pixels correspond to equal blocks of ``y``."""
    scale = _scale(call, d)
    return (x == y or not call["align_corners"]) and (scale is None or isclose(x * scale, y, rel_tol=1e-12))


def _scale(call: OpCall, d: int) -> float | None:
    if call.target.endswith(".vec"):
        return call["scale_factors"][d] if call["scale_factors"] is not None else None
    return call.args[d - KINDS[_kind(call)[0]]]


def _local(found: tuple[_Resampled, ...], local: Local) -> Sequence[Any]:
    """Resample the block with its halo and take the block of the result; the gradient is the reverse."""
    cut = [_Cut.of(local, r) for r in found if r.blocks and local.ways(r.blocks[0]) > 1]
    return [_gradient(local, cut) if _kind(local.spec)[1] else _resampled(local, cut)]


@dataclass(frozen=True)
class _Cut:
    """A rank's part of a dim: rows with their halo, padded to a whole number of blocks.

    The block does not depend on the ``front`` and ``back`` rows of padding.
    """

    resampled: _Resampled
    rows: Rows
    front: int
    back: int

    @staticmethod
    def of(local: Local, r: _Resampled) -> _Cut:
        (factor,) = r.blocks
        count = local.size(factor)
        size, (before, after) = count * r.p, r.reach(count)
        rows = Rows(factor, r.dim, local.ways(factor), size, before + size + after, size, before)
        return _Cut(r, rows, -before % r.p, -after % r.p)

    @property
    def given(self) -> int:
        return self.front + self.rows.made + self.back

    @property
    def made(self) -> int:
        return self._made(self.given)

    def _made(self, rows: int) -> int:
        return rows // self.resampled.p * self.resampled.q

    @property
    def first(self) -> int:
        """The first pixel of the rank's own block in the result."""
        return self._made(self.front + self.rows.before)

    @property
    def count(self) -> int:
        return self._made(self.rows.given)

    @property
    def reaches(self) -> bool:
        return self.rows.made > self.rows.given

    def padded(self, local: Local, x: Any, before: int, behind: int) -> Any:
        if not before and not behind:
            return x
        last = len(local.spec.tensors[0].shape) - 1
        pad = (*(0, 0) * (last - self.resampled.dim), before, behind)
        return local.emit("aten.constant_pad_nd", x, pad, 0.0)


def _sizes(local: Local, shape: Sequence[int], changed: dict[int, int]) -> tuple[int, ...]:
    return tuple(changed.get(d, size) for d, size in enumerate(shape))


def _resampled(local: Local, cut: Sequence[_Cut]) -> Any:
    x, shape = local.args[0], results_of(local)[0].shape
    for c in cut:
        if c.reaches:
            x = c.padded(local, c.rows.repeated(local, x, "replication"), c.front, c.back)
    changed: dict[str, object] = {parameters(local.spec.target)[0][0]: x}
    if local.spec["output_size"] is not None:
        sizes = _sizes(local, shape, {c.resampled.dim: c.made for c in cut})
        changed["output_size"] = sizes[-len(local.spec["output_size"]) :]
    made = emit_with(local, **changed)
    for c in cut:
        if c.reaches:
            made = part(local, made, c.resampled.dim, c.first, c.first + c.count)
    return made


def _gradient(local: Local, cut: Sequence[_Cut]) -> Any:
    grad, given = local.args[0], results_of(local)[0].shape
    for c in cut:
        grad = c.padded(local, grad, c.first, c.made - c.first - c.count)
    spatial = len(local.spec["output_size"])
    outer = _sizes(local, local.spec.tensors[0].shape, {c.resampled.dim: c.made for c in cut})
    inner = _sizes(local, given, {c.resampled.dim: c.given for c in cut})
    made = emit_with(local, grad_output=grad, output_size=outer[-spatial:], input_size=inner)
    for c in reversed(cut):
        if c.reaches:
            made = part(local, made, c.resampled.dim, c.front, c.front + c.rows.made)
            made = c.rows.added(local, made, "replication")
    return made
