"""Analysis of the part of every value of a micro-batch that belongs to a slice of its tokens.

A slice is a range of the sequence, which is dim 1 of the step's inputs. Sharding rules relate the dims of
each op, so they also define the op on a slice: the same op on a device that has only these tokens. A slice
depends on other slices only through keys and values of attention, which must be causal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import prod
from typing import NamedTuple

from torch_mlir import ir

from shardc.diagnostics.passes.pipeline import NotCausal
from shardc.dialects.aten.call import CallReader, OpCall
from shardc.dialects.location import source_line
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.rules.rule import Dim, Rule, find_rule_in_loops, replicated_rule
from shardc.passes.pipeline.stages.slice_lengths import (
    ATTENTION,
    ATTENTION_BACKWARD,
    balanced_lengths,
    check_lengths,
)
from shardc.passes.pipeline.stages.step_program import StepProgram, body_ops, tensor

_SAME = frozenset(("dist.slice", "dist.all_reduce"))
"""Ops of ``dist`` whose result is sliced like their operand, if they do not touch the sequence."""


class TokenCut(NamedTuple):
    """A dim of ``outer * tokens * inner`` elements; a slice has the elements of its tokens."""

    outer: int = 1
    inner: int = 1


class Lay(NamedTuple):
    """Slicing of a value: its dims and, if slices hold terms of a sum, the op that first computed terms."""

    dims: tuple[TokenCut | None, ...]
    origin: ir.Operation | None = None

    @property
    def is_cut(self) -> bool:
        return any(self.dims)


@dataclass(frozen=True)
class SlicedCall:
    """An op on a slice: its rule, its sliced ``factors``, and the slicing that it needs of its operands."""

    spec: OpCall
    rule: Rule
    operands: list[ir.Value]
    factors: dict[str, TokenCut]
    needs: tuple[tuple[TokenCut | None, ...], ...]


@dataclass
class TokenSlices:
    """The slices of a micro-batch.

    ``starts`` has the start of each slice, and the end of the last. ``lays`` has the slicing of values; other
    values are whole, and are sliced where they are read. ``calls`` are by first result.
    """

    starts: list[int]
    lays: dict[ir.Value, Lay] = field(default_factory=dict)
    calls: dict[ir.Value, SlicedCall] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return self.starts[-1]

    @property
    def count(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(end - start for start, end in pairwise(self.starts))

    def shape(
        self, whole: Sequence[int], dims: Sequence[TokenCut | None], start: int, end: int
    ) -> tuple[int, ...]:
        """Return the shape of the part with the tokens from ``start`` to ``end``."""
        return tuple(
            size if cut is None else cut.outer * (end - start) * cut.inner
            for size, cut in zip(whole, dims, strict=True)
        )

    def type(self, value: ir.Value, number: int) -> ir.Type:
        """The type of a value in slice ``number``."""
        found, lay = tensor(value), self.lays.get(value)
        if lay is None or found is None:
            return value.type
        shape = self.shape(found.shape, lay.dims, self.starts[number], self.starts[number + 1])
        return ir.Type.parse(str(found.with_shape(shape)), value.context)

    def carried(self, op: ir.Operation) -> Sequence[ir.Value]:
        """Return the results of an attention's backward with terms for earlier slices: dk, dv."""
        call = self.calls.get(op.results[0])
        return list(op.results)[1:3] if call is not None and call.spec.target == ATTENTION_BACKWARD else []

    def shared(self, op: ir.Operation) -> list[ir.Value]:
        """Return the operands of an attention that it reads from all slices up to its own: k, v."""
        call = self.calls.get(op.results[0])
        if call is None or call.spec.target not in (ATTENTION, ATTENTION_BACKWARD):
            return []
        return call.operands[1:3] if call.spec.target == ATTENTION else call.operands[2:4]


def slice_tokens(program: StepProgram, free: set[ir.Value], schedule: Schedule) -> TokenSlices:
    """Split the micro-batch of ``program`` into the slices of ``schedule``.

    Without lengths of its own, the slices take about equally long by the cost model (Li et al., TeraPipe,
    2021, section 3.3, find them by dynamic programming). Raises TooFewTokens, BadSliceLengths, and NotCausal
    for an op that depends on later slices.
    """
    tokens = next((shape[1] for _, shape in _inputs(program)), 0)
    check_lengths(schedule, tokens)
    found = TokenSlices([0, tokens])
    _Analysis(program, free, found).run()
    calls = [call.spec for call in found.calls.values()]
    found.starts = [0, *accumulate(schedule.lengths or balanced_lengths(calls, tokens, schedule.slices))]
    return found


def _inputs(program: StepProgram) -> Iterator[tuple[ir.Value, tuple[int, ...]]]:
    """Yield the inputs of more than one dim, as values of the loop's body, with their shapes outside."""
    for inside, outside in program.captures.items():
        type_ = tensor(outside)
        is_input = program.keys.get(outside, ("", ""))[0] == "input"
        if is_input and type_ is not None and len(type_.shape) > 1:
            yield inside, type_.shape


class _Analysis:
    def __init__(self, program: StepProgram, free: set[ir.Value], found: TokenSlices) -> None:
        self._program, self._free, self._found = program, free, found
        self._reader = CallReader()
        self._marks: dict[ir.Value, Lay] = {}
        """Slicing of values that depend on no parameter, as derived from the inputs."""
        for inside, shape in _inputs(program):
            dims = (TokenCut() if d == 1 and size == found.tokens else None for d, size in enumerate(shape))
            self._marks[inside] = Lay(tuple(dims))

    def run(self) -> None:
        folds = {v.owner.operation.results[0] for v in self._program.values.following}
        for op in body_ops(self._program.body):
            if op.results[0] in folds:
                continue
            free = op.results[0] in self._free
            lays = self._marks if free else self._found.lays
            try:
                for result, lay in zip(op.results, self._lays(op, free), strict=True):
                    # A value of all tokens that depends on no parameter is whole: every slice computes it.
                    if lay is not None and (lay.is_cut or (lay.origin is not None and not free)):
                        lays[result] = lay
            except NotCausal:
                if not free:
                    raise

    def _lay(self, value: ir.Value) -> Lay:
        known = self._found.lays.get(value) or self._marks.get(value)
        type_ = tensor(value)
        return known or Lay((None,) * (len(type_.shape) if type_ else 0))

    def _lays(self, op: ir.Operation, free: bool) -> Sequence[Lay | None]:
        whole = (None,) * len(op.results)
        if op.name in _SAME:
            return [self._same(op)]
        if not op.name.startswith("torch."):
            if any(tensor(v) and self._lay(v).is_cut for v in op.operands):
                raise self._refusal(op, "it moves data between devices")
            return whole
        if any(tensor(v) is None for v in op.results):
            return whole
        call = self._reader.read(op)
        lays = [self._lay(v) for v in call.operands if tensor(v) is not None]
        if not any(lay.is_cut or lay.origin is not None for lay in lays):
            return whole
        rule = find_rule_in_loops(call.spec) or replicated_rule(call.spec)
        attention = call.spec.target in (ATTENTION, ATTENTION_BACKWARD)
        factors = self._factors(op, rule, lays)
        if attention:
            self._check_attention(op, call.spec, factors)
        elif len(factors) > 1:
            raise self._refusal(op, "it combines tokens with other tokens")
        results = self._results(op, rule, factors, lays, attention)
        if not free:
            needs = tuple(_dims(dims, factors, rule) for dims in rule.operands)
            self._found.calls[op.results[0]] = SlicedCall(call.spec, rule, call.operands, factors, needs)
        return results

    def _same(self, op: ir.Operation) -> Lay:
        lay, before, after = self._lay(op.operands[0]), tensor(op.operands[0]), tensor(op.results[0])
        assert before is not None and after is not None
        if any(cut and a != b for cut, a, b in zip(lay.dims, before.shape, after.shape, strict=True)):
            raise self._refusal(op, "it distributes tokens over devices")
        return lay

    def _factors(self, op: ir.Operation, rule: Rule, lays: list[Lay]) -> dict[str, TokenCut]:
        """Return the factors of an op that its operands' slices split."""
        factors: dict[str, TokenCut] = {}
        for lay, dims in zip(lays, rule.operands, strict=True):
            for cut, dim in zip(lay.dims, dims, strict=True):
                if cut is None:
                    continue
                placed = _place(cut, dim, rule, self._found.tokens)
                if placed is None or factors.setdefault(placed[0], placed[1]) != placed[1]:
                    why = "it reshapes the sequence so that slices of tokens cannot be separated"
                    raise self._refusal(op, why)
        return factors

    def _check_attention(self, op: ir.Operation, spec: OpCall, factors: dict[str, TokenCut]) -> None:
        if spec["mask"] is not None:
            raise self._refusal(op, "it has a mask, which may not be causal")
        if not spec["causal"] or spec["q_offset"] != 0:
            raise self._refusal(op, "it attends to later tokens: it is not causal")
        if factors != {"q": TokenCut(), "k": TokenCut()}:
            raise self._refusal(op, "its queries and keys are not those of one sequence")

    def _results(
        self, op: ir.Operation, rule: Rule, factors: dict[str, TokenCut], lays: list[Lay], attention: bool
    ) -> list[Lay | None]:
        origin = next((lay.origin for lay in lays if lay.origin is not None), None)
        summed = frozenset(i for i, lay in enumerate(lays) if lay.origin is not None)
        if origin is not None and (summed not in rule.linear or factors):
            each = ", for each token" if summed in rule.linear else ""
            raise self._refusal(origin, f"{_name(op)} reads its result, which depends on all tokens{each}")
        made: list[Lay | None] = []
        for dims in rule.results:
            present = {f for dim in dims for f in dim}
            for f in factors:
                if f in rule.replicate and not (attention and f == "k"):
                    raise self._refusal(op, "a token's result depends on other tokens")
                if f not in present and not attention:
                    if rule.reduce.get(f) != "sum":
                        raise self._refusal(op, "it reduces the sequence by another reduction than a sum")
                    origin = origin or op
            made.append(Lay(_dims(dims, factors, rule), origin))
        return made

    def _refusal(self, op: ir.Operation, why: str) -> NotCausal:
        return NotCausal(op=_name(op), why=why, where=source_line(op.location))


def _name(op: ir.Operation) -> str:
    return op.attributes["name"].value if op.name == "torch.operator" else op.name


def _place(cut: TokenCut, dim: Dim, rule: Rule, tokens: int) -> tuple[str, TokenCut] | None:
    """Return the factor of a dim that a cut splits, and the cut in terms of that factor."""
    behind = 1
    for f in reversed(dim):
        size = rule.sizes[f]
        inner, rest = divmod(cut.inner, behind)
        if rest == 0 and size % (inner * tokens) == 0:
            placed = TokenCut(size // (inner * tokens), inner)
            if _composed(placed, f, dim, rule) == cut:
                return f, placed
        behind *= size
    return None


def _composed(cut: TokenCut, factor: str, dim: Dim, rule: Rule) -> TokenCut:
    """Convert a cut of a factor to a cut of the factor's dim."""
    at = dim.index(factor)
    before, behind = (prod(rule.sizes[f] for f in part) for part in (dim[:at], dim[at + 1 :]))
    return TokenCut(before * cut.outer, cut.inner * behind)


def _dims(dims: tuple[Dim, ...], factors: dict[str, TokenCut], rule: Rule) -> tuple[TokenCut | None, ...]:
    found: list[TokenCut | None] = []
    for dim in dims:
        cut = [_composed(factors[f], f, dim, rule) for f in dim if f in factors]
        found.append(cut[0] if cut else None)
    return tuple(found)
