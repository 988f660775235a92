"""Rules of constant, reflection, replication and circular padding, and of their gradients.

A dim of ``(b s)`` elements becomes ``(b t)``, where b is the largest number of equal blocks on both sides. If
b is split, ranks exchange the rows by which their blocks shift. Sizes without a common divisor stay whole;
``torch-round-pads`` rewrites pads to sizes that have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import gcd
from typing import Any

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.pointwise import Factors, Sets
from shardc.dialects.rules.rule import Dim, Local, Rule, emit_with, rule_for
from shardc.dialects.rules.spatial.rows import Rows

_EDGES = tuple(f"aten.{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3))
_EDGES += ("shardc.circular_pad",)
CONSTANT = "aten.constant_pad_nd"
PADS = (CONSTANT, *_EDGES, *(f"{name}_backward" for name in _EDGES))


@dataclass(frozen=True)
class _Pad:
    """Padding of one dim: ``before`` elements in front; if negative, that many are removed.

    ``blocks`` is the factor of the blocks that both sides share, () if sizes have no common divisor.
    """

    dim: int
    before: int
    blocks: Dim


def amounts(call: OpCall) -> tuple[int, ...]:
    """Return the elements of padding before and after each dim, the last dim first."""
    return call["pad" if call.target == CONSTANT else "padding"]


def reads_padded(call: OpCall) -> bool:
    """Return whether the call is the gradient of a pad, whose first operand is the padded side."""
    return call.target.endswith("_backward")


def _sides(call: OpCall) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the unpadded and the padded shape."""
    if reads_padded(call):
        return call.tensors[1].shape, call.tensors[0].shape
    return call.tensors[0].shape, call.result.shape


@rule_for(*PADS)
def pad(call: OpCall) -> Rule:
    """Rule of padding, which is linear unless the constant is other than 0."""
    small, large = _sides(call)
    factors, pairs = Factors(), amounts(call)
    dims: list[tuple[Dim, Dim]] = []
    pads: list[_Pad] = []
    for d, (size, padded) in enumerate(zip(small, large, strict=True)):
        place = 2 * (len(small) - 1 - d)
        before, after = pairs[place : place + 2] if place < len(pairs) else (0, 0)
        blocks = factors.new(gcd(size, padded)) if size and padded else ()
        same = (before, after) == (0, 0)
        dims.append((blocks, blocks) if same else _in_blocks(factors, blocks, size, padded))
        pads += [] if same else [_Pad(d, before, blocks)]
    inner, outer = (tuple(side) for side in zip(*dims, strict=True))
    backward = reads_padded(call)
    constant = call.target == CONSTANT and call["value"] != 0
    sets: Sets = () if constant else ((0,),)
    operands, result = ((outer, inner), inner) if backward else ((inner,), outer)
    rule = factors.rule(call, operands, (result,), sets, partial(_local, tuple(pads)))
    return replace(rule, traded=frozenset(f for p in pads for f in p.blocks))


def _in_blocks(factors: Factors, blocks: Dim, size: int, padded: int) -> tuple[Dim, Dim]:
    common = factors.sizes[blocks[0]] if blocks else 1
    return (*blocks, *factors.whole(size // common)), (*blocks, *factors.whole(padded // common))


def _local(pads: tuple[_Pad, ...], local: Local) -> Sequence[object]:
    """Pad on a rank: ranks exchange rows of split dims; the operator pads the other dims."""
    cut = [p for p in pads if p.blocks and local.ways(p.blocks[0]) > 1]
    if not cut:
        return [emit_with(local)]
    backward = reads_padded(local.spec)
    x = reduce(lambda x, p: _traded(local, p, x, backward), cut, local.args[0])
    name = "pad" if local.spec.target == CONSTANT else "padding"
    places = {2 * (len(local.spec.tensors[0].shape) - 1 - p.dim) for p in cut}
    rest = tuple(0 if i - i % 2 in places else n for i, n in enumerate(amounts(local.spec)))
    return [emit_with(local, **{"grad_output" if backward else "self": x, name: rest})] if any(rest) else [x]


def _traded(local: Local, p: _Pad, x: Any, backward: bool) -> Any:
    spec, (factor,) = local.spec, p.blocks
    small, large = (shape[p.dim] // local.ways(factor) for shape in _sides(spec))
    rows = Rows(factor, p.dim, local.ways(factor), small, large, large, p.before)
    if spec.target == CONSTANT:
        return rows.moved(local, x, spec["value"])
    kind = spec.target.partition(".")[2].split("_")[0]
    return rows.added(local, x, kind) if backward else rows.repeated(local, x, kind)
