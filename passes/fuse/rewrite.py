"""Replacement of a block's ops by the kernels of their groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch_mlir import ir

from shardc.cost.work import LAUNCH_BYTES, MAPPED_BYTES, TRIMMED_BYTES
from shardc.dialects.aten.call import target_name
from shardc.dialects.kern.kernel import CHECKS, write_checks
from shardc.dialects.kern.size import symbols_of
from shardc.passes.fuse.bodies.bodies import Bodies
from shardc.passes.fuse.bodies.inner_order import order_inner
from shardc.passes.fuse.bodies.marks import Marks, name_results, phase_of
from shardc.passes.fuse.bodies.whole import read_whole
from shardc.passes.fuse.grouping.again import compute_again
from shardc.passes.fuse.grouping.choose import Division
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.grouping.group import Decision, exports, group
from shardc.passes.fuse.grouping.legal import size_hint
from shardc.passes.fuse.reading.graph import Step, Value
from shardc.passes.fuse.reading.order import check_unread, erase, move, ordered, place
from shardc.passes.fuse.reading.unit import Unit, needed_views
from shardc.passes.fuse.reading.values import owner_of
from shardc.passes.fuse.structured.convolution import KERNEL
from shardc.passes.fuse.structured.losses import Losses
from shardc.passes.fuse.structured.scatter import Scatter
from shardc.passes.fuse.structured.sums_of_terms import SumsOfTerms


class Rewrite:
    """Fusion of a block. A generated matmul becomes a kernel even if it is alone in its group.

    So does a pointwise op with a large result if such results are ``pooled``.
    """

    def __init__(self, division: Division, bodies: Bodies, marks: Marks, pooled: bool = False) -> None:
        self._bodies, self._marks, self._alone = bodies, marks, division.generated
        if pooled:
            self._alone |= {step.number for step in division.read.steps if _is_mapped(step)}
        self._read, self._block = division.read, division.read.block
        self._units, self._decisions = division.units, division.decisions

    def run(
        self, lone: bool, constraints: FusionConstraints, scatters: Sequence[Scatter], losses: Losses
    ) -> list[tuple[str, str, Decision]]:
        """Replace ops by kernels; return all decisions, also those on ``scatters`` and ``losses``.

        ``scatters`` whose terms their kernels compute are replaced, too.
        """
        number, joined = self._marks.number, [s for s in scatters if len(s.numbers) > 1]
        if self._decisions is None:
            granted = {frozenset(scatter.numbers) for scatter in joined} | losses.pairs
            constrained = constraints.in_block(number, self._read.steps).without(granted)
            self._decisions = group(self._units, constrained)
        saved = [(s, LAUNCH_BYTES + 2 * s.size_bytes) for s in joined]
        found = [Decision(s.numbers[0], s.numbers[1], True, saved_bytes) for s, saved_bytes in saved]
        found += [*losses.decisions, *self._decisions]
        kernels = list(self._units.groups) if lone else self._kernels()
        self.sums = SumsOfTerms(self._read, self._units, kernels, self._bodies.rounding)
        found += self.sums.find(scatters, constraints.in_block(number, self._read.steps))
        if kernels or self.sums.terms:
            self._rewrite(kernels)
        return [(f"{number}.{d.first}", f"{number}.{d.second}", d) for d in found]

    def _kernels(self) -> list[Unit]:
        """Return the groups that become kernels. A group of a single call does so only if it must, or gains.

        It must if it reads only the shape of an operand (``ones_like``). As a call it would wait for the
        operand, which groups do not model; a kernel that contains both a reader of the call and a producer of
        the operand would then wait for itself. It also must if a kernel reads a value that the call does not
        return, such as a sum before rounding.
        """
        shared = {call for unit in self._units.groups if len(unit.calls) > 1 for call in unit.calls}
        shared |= {step.number for step in self._read.steps if step.always} | self._alone
        free = {call for unit in self._units.groups if not unit.accesses for call in unit.calls}
        shared |= {call for call in free if self._waits(call)}
        todo = found = {unit for unit in self._units.groups if unit.calls & shared}
        while todo:
            inner = (value for unit in todo for value in unit.accesses if value.ir is None)
            todo = {self._units.maker[value] for value in inner if value in self._units.maker} - found
            found = found | todo
        return [unit for unit in self._units.groups if unit in found]

    def _waits(self, call: int) -> bool:
        """Return whether a call has a computed operand."""
        return any(not isinstance(value.ir, ir.BlockArgument) for value in self._read.steps[call].operands)

    def _rewrite(self, kernels: list[Unit]) -> None:
        compute_again(self._units, kernels)
        for unit in kernels:
            read_whole(unit)
        staying = self._staying(kernels)
        self._units.kept |= {v for unit in staying if unit.step for v in unit.step.operands}
        results = {unit: exports(self._units, {unit}) for unit in kernels}
        if not self.sums.terms:  # which read such values, too
            order_inner(kernels, results)
        early = self._freeing([*staying, *kernels], results)
        terminator = list(self._block.operations)[-1].operation
        kept = {unit.step.number for unit in staying if unit.step is not None}
        dead = [step.op for step in self._read.steps if step.number not in kept]
        lists: set[ir.Operation] = set()
        for unit in ordered([*staying, *kernels], self._sources(staying, kernels), early):
            if unit.step is not None:
                move(unit.step.op, terminator, lists)
                self.sums.write(unit.step, self._marks)
            elif results[unit]:
                self._write(unit, results[unit], ir.InsertionPoint(terminator))
        check_unread(dead)
        for op in reversed(dead):
            erase(op)

    def _freeing(self, units: list[Unit], results: dict[Unit, list[Value]]) -> set[Unit]:
        """Return the kernels that free more bytes than they allocate. Updates of state allocate nothing."""
        last: dict[Value, Unit] = {}
        for unit in sorted(units, key=place):
            last.update((v, unit) for v in (unit.step.operands if unit.step else unit.accesses))
        freed = Counter[Unit]()
        for value, unit in last.items():
            is_made = value.ir is not None and not isinstance(value.ir, ir.BlockArgument)
            if is_made and value.type.is_static:
                freed[unit] += size_hint(value.type)
        phases = self._units.phases
        return {
            unit
            for unit, made in results.items()
            if freed[unit]
            > sum(size_hint(v.type) for v in made if v.node is None or phases[v.node.call] != "optimizer")
        }

    def _staying(self, kernels: list[Unit]) -> list[Unit]:
        """Return a unit for each op that stays, including ops that could be lowered but share no kernel."""
        fused = {call for unit in kernels for call in unit.calls}
        needed = needed_views(self._read, fused, (value for unit in kernels for value in unit.accesses))
        steps = [step for step in self._read.steps if not step.is_unread]
        return [Unit(s) for s in steps if (s.number in needed if s.is_view else s.number not in fused)]

    def _sources(self, staying: list[Unit], kernels: list[Unit]) -> dict[Unit, set[Unit]]:
        """Return, for each unit, the units whose values it reads."""
        maker: dict[Value, Unit] = {}
        for unit in staying:
            assert unit.step is not None
            made = [result for result in unit.step.results if result is not None]
            made += [result.node.out for result in made if result.node is not None]
            maker.update(dict.fromkeys(made, unit))
        for unit in kernels:
            maker.update((value, unit) for node in unit.nodes for value in (node.out, *node.others))
        units = (*staying, *kernels)
        read = {unit: unit.accesses if unit.step is None else unit.step.operands for unit in units}
        return {unit: {maker[v] for v in values if v in maker} - {unit} for unit, values in read.items()}

    def _write(self, unit: Unit, results: list[Value], ip: ir.InsertionPoint) -> None:
        steps = [self._read.steps[number] for number in sorted(unit.calls)]
        loc = ir.Location.fused([step.op.location for step in steps], context=self._block.owner.context)
        name, symbols = self._marks.name(steps), self._read.symbols
        made, op = self._bodies.write(name, unit, results, symbols, loc=loc, ip=ip)
        self._marks.write(op, steps, phase_of(steps[0].op))
        checks = {n: v.node.check for n, v in enumerate(results) if v.node is not None and v.node.check}
        if checks:
            op.attributes[CHECKS] = write_checks(checks, op.context)
        unpack = made[0].owner
        name_results(unpack, results)
        symbols.note(unpack, [value.type for value in results])
        for value, new in zip(results, made, strict=True):
            if value.ir is not None:
                value.ir.replace_all_uses_with(new)
            value.ir = new


def _is_mapped(step: Step) -> bool:
    """Return whether ATen's result is so large that each call maps new memory; a kernel reuses its own.

    Beside a convolution's kernel it maps smaller ones, too: little other memory is in use and kept.
    """
    results = [value.type for value in step.results if value is not None]
    known = (type_ for type_ in results if type_.is_static and not symbols_of(type_.shape))
    makers = [owner_of(value.ir) for value in step.operands if value.ir is not None]
    beside = any(
        op is not None and op.name == "torch.operator" and target_name(op) == KERNEL for op in makers
    )
    large = any(type_.size_bytes >= (TRIMMED_BYTES if beside else MAPPED_BYTES) for type_ in known)
    return large and bool(step.nodes) and not any(node.reduce for node in step.nodes)
