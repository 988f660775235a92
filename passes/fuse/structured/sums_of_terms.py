"""Sums at computed indices whose kernels compute the terms that they add."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardc.cost.work import LAUNCH_BYTES
from shardc.dialects.kern.size import symbols_of
from shardc.passes.fuse.bodies.marks import Marks, name_results, phase_of
from shardc.passes.fuse.grouping.constraints import BlockConstraints
from shardc.passes.fuse.grouping.group import Decision
from shardc.passes.fuse.reading.graph import Block, Step, Value
from shardc.passes.fuse.reading.unit import Unit, Units
from shardc.passes.fuse.reading.values import type_of
from shardc.passes.fuse.structured.scatter import Scatter, ScatterKernels
from shardc.passes.fuse.structured.terms import Terms, find_terms, operands_of


class SumsOfTerms:
    """Sums of a block, with the ``terms`` that their kernels compute; ``kernels`` are the block's groups."""

    def __init__(self, read: Block, units: Units, kernels: list[Unit], rounding: str) -> None:
        self._read, self._units, self._kernels, self._rounding = read, units, kernels, rounding
        self.terms: dict[Scatter, Terms] = {}

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the sums' steps."""
        return [number for scatter in self.terms for number in scatter.numbers]

    def find(self, scatters: Iterable[Scatter], constraints: BlockConstraints) -> list[Decision]:
        """Find the sums; return the decisions on their ops with those that compute the terms."""
        found: list[Decision] = []
        for scatter in scatters:
            step = self._read.steps[scatter.numbers[0]]
            added = self._kernel_writer().updates(scatter)
            updates = None if added is None else self._read.values[added]
            if updates is None or symbols_of(updates.type.shape):
                continue
            zeros = self._kernel_writer().left(scatter)[len(scatter.ops) :]
            positions = self._kernel_writer().positions(scatter)
            given = (self._units, self._kernels, step, updates, self._rounding, constraints, positions)
            terms = find_terms(*given, zeros)
            if terms is None:
                continue
            self.terms[scatter] = terms
            saved = LAUNCH_BYTES + 2 * int(updates.type.size_bytes)
            found += [Decision(call, step.number, True, saved) for call in sorted(terms.calls)]
        return found

    def _kernel_writer(self) -> ScatterKernels:
        return ScatterKernels(self._read.block, self._read.symbols)

    def write(self, step: Step, marks: Marks) -> None:
        """Write the kernel of the sum whose last op is ``step``, if any."""
        for scatter, terms in self.terms.items():
            if scatter.numbers[-1] == step.number:
                self._write(scatter, terms, marks)

    def _write(self, scatter: Scatter, terms: Terms, marks: Marks) -> None:
        steps: Sequence[Step] = [self._read.steps[n] for n in sorted({*terms.calls, *scatter.numbers})]
        last, left = scatter.ops[-1], self._kernel_writer().left(scatter)
        (old,) = last.results
        kernel, out = self._kernel_writer().write(
            scatter, marks.name(steps), operands_of(terms, self._rounding), terms.positions
        )
        marks.write(kernel, steps, phase_of(scatter.ops[0]))
        name_results(out.owner, [Value(type_of(old), old)])
        old.replace_all_uses_with(out)
        self._read.values[old].ir = out
        for op in [*reversed(scatter.ops), *left[len(scatter.ops) :]]:
            op.erase()
