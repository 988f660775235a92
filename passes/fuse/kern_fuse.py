"""``kern-fuse``: groups of ops become ``kern.kernel``s."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch_mlir import ir

from shardc.diagnostics.fusion import NoSuchFusionEdge
from shardc.dialects.aten.call import CallReader, target_name
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.build import string
from shardc.dialects.dist.loop import LoopOp
from shardc.dialects.dist.sharding import ShardingAttr
from shardc.dialects.kern.kernel import CHECKS, IN_PLACE, NAME, SHAPES, KernelOp, kernel_name, write_checks
from shardc.dialects.kern.strides import Strides, argument_strides
from shardc.dialects.pipe.send import SendOp
from shardc.passes.base import Pass
from shardc.passes.fuse.bodies import Bodies
from shardc.passes.fuse.captures import drop_captures
from shardc.passes.fuse.choices import NUMERICS
from shardc.passes.fuse.choose import Division, divide_matmuls
from shardc.passes.fuse.graph import Value
from shardc.passes.fuse.group import LAUNCH_BYTES, Decision, exports, group
from shardc.passes.fuse.in_place import place_results, state_writes
from shardc.passes.fuse.losses import Losses
from shardc.passes.fuse.lower_attention import ATTENTION, AttentionKernels, call_library
from shardc.passes.fuse.lower_grouped_matmul import GROUPED, GroupedMatmulKernels
from shardc.passes.fuse.lower_linear_loss import LINEAR_LOSSES, LinearLossKernels
from shardc.passes.fuse.lower_matmul import matmul_calls
from shardc.passes.fuse.lower_scatter import SCATTERS, Scatter, ScatterKernels
from shardc.passes.fuse.order import check_unread, erase, move, ordered
from shardc.passes.fuse.piece import Choose, EveryPiece, call_piece, is_asked
from shardc.passes.fuse.read import Step, read_block, steps_of
from shardc.passes.fuse.symbols import Symbols
from shardc.passes.fuse.unit import Unit, make_units, needed_views, release
from shardc.passes.fuse.wishes import Wishes
from shardc.passes.ingest.torch_share import drop_unread, unread
from shardc.passes.program import program_functions


@dataclass(frozen=True)
class KernFuse(Pass):
    """Turns groups of torch ops that save memory traffic as one kernel into a ``kern.kernel`` with a linalg body.

    Pointwise ops with broadcasts, row reductions with what is before and after them, column reductions beside both;
    views and slices become index maps, concatenations of equal parts a choice by index. Collectives, sends, loops and
    all ops without a lowering stay where they are, in their order; the bodies of loops and of a pipeline's stages are
    fused each by itself, and kernels of one body compiled once for all of them. ``matmuls``: ``extern`` leaves them calls of ATen, ``generated`` makes contractions of them, with what stands before and after.
    ``numerics``: ``fused`` computes chains of 16-bit floats in f32 and rounds at a kernel's results, ``eager`` rounds
    after every op as eager does. ``lone``: ops that share no kernel with another become kernels too, which saves
    nothing, and shows what every lowering makes. ``for_gpu``: where ``matmuls`` is ``generated``, so are
    kernels that GPUs alone have: two of a linear layer with a cross entropy behind it, forward and backward, that hold
    no logits, and one of each grouped matmul. ``forbid`` and ``force`` are
    edges such as ``aten.add.Tensor+gelu@model.py:12`` (:mod:`shardc.passes.fuse.wishes`): pairs of ops that must not, and that must
    share a kernel; one that fits no ops, or that cannot be had, is an error.
    """

    name: ClassVar[str] = "kern-fuse"
    numerics: str = "fused"
    lone: bool = False
    forbid: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    matmuls: str = "extern"
    for_gpu: bool = False

    def run(self, module: ir.Module) -> None:
        wishes = Wishes.of(self.forbid, self.force)
        fuse_module(module, self.numerics, lone=self.lone, wishes=wishes, matmuls=self.matmuls, for_gpu=self.for_gpu)
        for edge in sorted(wishes.unmatched):
            raise NoSuchFusionEdge(edge=edge)


def fuse_module(
    module: ir.Module,
    numerics: str = "fused",
    exclude: frozenset[ir.Value] = frozenset(),
    without: frozenset[str] = frozenset(),
    lone: bool = False,
    wishes: Wishes | None = None,
    writes: Sequence[tuple[int, int]] = (),
    matmuls: str | Choose = "extern",
    for_gpu: bool = False,
) -> list[tuple[str, str, Decision]]:
    """Fuses every block of the module's step, or of a pipeline's stages and ranks; gives the calls of each pair that was looked at, and how it came out.

    Calls have the numbers that they have in ``kern.calls``. ``matmuls`` is one of ``extern`` and ``generated``, or
    decides on each piece of the program that has some, and on attention whose kernel is not known to be faster.
    ``for_gpu``: it decides on linear layers with a cross entropy behind them, and on grouped matmuls, too; else these
    stay calls.

    Calls that make one of ``exclude`` stay as they are, and so do those ``without``: entries of the ``kern.calls`` that
    kernels had when the same module was fused before. ``writes`` are (argument, result) pairs of the step: the program
    ends by writing the result to the argument, whose memory a kernel may then use for it; a training step's own are
    known. Raises ValueError for unknown
    ``numerics`` or ``matmuls``, and FusionRefused for an edge that ``wishes`` force and that cannot be had.
    """
    if numerics not in NUMERICS:
        raise ValueError(f"numerics is {numerics!r}; it must be one of {', '.join(NUMERICS)}")
    choose = None if isinstance(matmuls, str) else matmuls
    stays = matmul_calls(matmuls) if isinstance(matmuls, str) else frozenset()
    functions = program_functions(module)
    wishes = wishes or Wishes()
    names: Iterator[int] = itertools.count()
    strides = {value: known for function in functions for value, known in argument_strides(function).items()}
    bodies = Bodies(numerics)
    decisions: list[tuple[str, str, Decision]] = []
    blocks = [block for function in functions for block in step_blocks(function.regions[0].blocks[0])]
    for number, block in enumerate(blocks):
        calls = frozenset(int(c.partition(".")[2]) for c in without if c.startswith(f"{number}."))
        scatters, theirs = _find_scatters(number, block, exclude, calls, wishes, numerics, lone)
        linear = Losses(number, block, exclude, calls, wishes, numerics, strides)
        if for_gpu and matmuls != "extern":
            linear.find(choose)
            theirs |= linear.numbers
        read = partial(read_block, block, CallReader(), exclude, calls | theirs)
        if choose is None:
            block_read = read(stays)
            division = Division(block_read, make_units(block_read))
        else:
            division = divide_matmuls(number, read, choose, wishes, strides)
        fusion = _Fusion(division, number, bodies, calls, names)
        decisions += fusion.run(lone, wishes, scatters, linear)
        fusion.write_attentions(strides, choose)
        if for_gpu and matmuls != "extern":
            fusion.write_grouped(strides, choose)
            fusion.write_linear_losses()
        fusion.write_scatters(scatters)
        fusion.write_losses(linear)
        fusion.release()
        if linear.numbers and block.owner.name == LoopOp.OPERATION_NAME:
            drop_captures(block)
    blocks = [block for function in functions for block in step_blocks(function.regions[0].blocks[0])]
    pairs = _written(functions, writes)
    for block in blocks:
        place_results(block, pairs)
    _share_names(blocks, bodies)
    return decisions


def _find_scatters(
    number: int,
    block: ir.Block,
    exclude: frozenset[ir.Value],
    without: frozenset[int],
    wishes: Wishes,
    numerics: str,
    lone: bool,
) -> tuple[list[Scatter], frozenset[int]]:
    """The sums at computed indices of block ``number`` that become kernels,
    and the calls that are thus not to be in others.
    """
    steps = steps_of(block)
    if not any(op.name.startswith("torch.") and target_name(op) in SCATTERS for op in steps):
        return [], frozenset()
    wished = wishes.in_block(number, [Step(n, op, target_name(op), [], []) for n, op in enumerate(steps)])
    forced = {call: sum(pair) - call for pairs in wished.forced.values() for pair in pairs for call in pair}
    scatters, excluded = ScatterKernels(block, Symbols(block)), exclude | unread(block)

    def is_free(step: int) -> bool:
        return step not in without and excluded.isdisjoint(steps[step].results)

    def may_join(first: int, second: int) -> bool:
        return forced.get(second, first) == first and not wished.forbids({first}, {second})

    found = list(scatters.find(steps, is_free, may_join, numerics, lone))
    theirs = {op for scatter in found for op in scatters.left(scatter)}
    return found, frozenset(n for n, op in enumerate(steps) if op in theirs)


def _written(
    functions: Sequence[ir.Operation], writes: Sequence[tuple[int, int]]
) -> dict[ir.Value, ir.Value]:
    """New value -> the argument of its function that takes it; none that is sent, for nobody waits until it has left."""
    pairs: dict[ir.Value, ir.Value] = {}
    for function in functions:
        block = function.regions[0].blocks[0]
        results = list(list(block.operations)[-1].operation.operands)
        found = [*writes, *state_writes(function)]
        both = ((results[result], block.arguments[argument]) for argument, result in found)
        pairs.update((new, old) for new, old in both if not _is_sent(old))
    return pairs


def _is_sent(value: ir.Value) -> bool:
    readers = [use.owner for use in value.uses if use.owner.name == "torch.prim.TupleConstruct"]
    return any(use.owner.name == SendOp.OPERATION_NAME for tuple_ in readers for use in tuple_.results[0].uses)


def _kernel_ops(blocks: list[ir.Block]) -> list[ir.Operation]:
    ops = (view.operation for block in blocks for view in block.operations)
    return [op for op in ops if op.name == KernelOp.OPERATION_NAME]


def _share_names(blocks: list[ir.Block], bodies: Bodies) -> None:
    """Kernels with equal bodies get one name: they are compiled once. Names are numbered by body: they, and so the
    compiled library, stay as they are if a model has more layers.
    """
    names: dict[tuple[str, ...], ir.Attribute] = {}
    for op in _kernel_ops(blocks):
        more = (str(op.attributes[name]) if name in op.attributes else "" for name in (IN_PLACE, SHAPES))
        stem = kernel_name(op).rpartition("_")[0]
        name = string(f"{stem}_{len(names)}", op.context)
        op.attributes[NAME] = names.setdefault((bodies.text(op), *more), name)


def step_blocks(block: ir.Block) -> Iterator[ir.Block]:
    """A block and those of the loops in it."""
    for op in block.operations:
        if op.operation.name == "dist.loop":
            yield from step_blocks(op.operation.regions[0].blocks[0])
    yield block


class _Fusion:
    """Fuses one block. Generated matmuls become kernels even where they share none, the calls ``without`` never."""

    def __init__(
        self,
        division: Division,
        number: int,
        bodies: Bodies,
        without: frozenset[int],
        names: Iterator[int],
    ) -> None:
        self._names, self._bodies, self._number = names, bodies, number
        self._without, self._alone = without, division.generated
        self._read, self._block = division.read, division.read.block
        self._units, self._decisions = division.units, division.decisions

    def run(
        self, lone: bool, wishes: Wishes, scatters: Sequence[Scatter], losses: Losses
    ) -> list[tuple[str, str, Decision]]:
        """``scatters`` and ``losses``: what they join is decided already."""
        joined = [scatter for scatter in scatters if len(scatter.numbers) > 1]
        granted = {frozenset(scatter.numbers) for scatter in joined} | losses.pairs
        found = [Decision(*s.numbers, True, LAUNCH_BYTES + 2 * s.size_bytes) for s in joined] + losses.decisions
        if self._decisions is None:
            wished = wishes.in_block(self._number, self._read.steps).without(granted)
            self._decisions = group(self._units, wished)
        found += self._decisions
        decisions = [(f"{self._number}.{d.first}", f"{self._number}.{d.second}", d) for d in found]
        kernels = list(self._units.groups) if lone else self._kernels()
        if kernels:
            self._rewrite(kernels)
        return decisions

    def write_attentions(self, strides: Mapping[ir.Value, Strides], choose: Choose | None) -> None:
        """Attention calls become kernels, each by itself, where that is faster."""
        calls = [s for s in self._read.steps if s.target in ATTENTION and s.number not in self._without]
        if not calls:
            return
        attentions = AttentionKernels(self._block, strides, self._read.symbols)
        for step in calls:
            flops, phase = attentions.flops(step.op), _phase(step.op)
            if not flops:
                continue
            faster = attentions.is_faster(step.op) and not isinstance(choose, EveryPiece)
            if choose and not faster and is_asked(flops, choose):
                piece = call_piece(self._number, self._read, step.number, strides)
                verdict = None if piece is None else choose(piece)
                faster = verdict is not None and verdict.generated
                if verdict is not None and verdict.library:
                    call_library(step.op, verdict.library)
            if faster:
                self._mark(attentions.write(step.op, self._name([step])), [step], phase)
        drop_unread(self._block)

    def write_grouped(self, strides: Mapping[ir.Value, Strides], choose: Choose | None) -> None:
        """Grouped matmuls become kernels, each by itself; ``choose`` decides on each, None: all of them."""
        calls = [s for s in self._read.steps if s.target == GROUPED and s.number not in self._without]
        grouped = GroupedMatmulKernels(self._block.owner.context)
        for step in calls:
            flops, phase = grouped.flops(step.op), _phase(step.op)
            wanted = bool(flops)
            if wanted and choose is not None:
                piece = call_piece(self._number, self._read, step.number, strides) if is_asked(flops, choose) else None
                wanted = piece is not None and choose(piece).generated
            if wanted:
                (old,) = step.op.results
                op, out = grouped.write(step.op, self._name([step]))
                self._mark(op, [step], phase)
                _name_results(out.owner, [Value(read_type(old.type), old)])
                old.replace_all_uses_with(out)
                step.op.erase()
        drop_unread(self._block)

    def write_linear_losses(self) -> None:
        """Linear layers with a cross entropy that are calls of one op become kernels: it was decided where they were made."""
        calls = [s for s in self._read.steps if s.target in LINEAR_LOSSES and s.number not in self._without]
        kernels = LinearLossKernels(self._block)
        for step in calls:
            if kernels.has(step.op):
                phase = _phase(step.op)
                self._mark(kernels.write(step.op, self._name([step])), [step], phase)
        drop_unread(self._block)

    def write_scatters(self, scatters: Sequence[Scatter]) -> None:
        """Sums at computed indices become kernels, each by itself or with what it is added to."""
        if not scatters:
            return
        kernels = ScatterKernels(self._block, self._read.symbols)
        for scatter in scatters:
            steps = [self._read.steps[number] for number in scatter.numbers]
            op, out = kernels.write(scatter, self._name(steps))
            self._mark(op, steps, _phase(steps[0].op))
            old = steps[-1].op.results[0]
            _name_results(out.owner, [Value(scatter.type, old)])
            old.replace_all_uses_with(out)
            for step in reversed(steps):
                step.op.erase()
        drop_unread(self._block)

    def write_losses(self, losses: Losses) -> None:
        """Linear layers with a cross entropy become two kernels each."""
        names = (f"linear_cross_entropy{part}_{next(self._names)}" for part in itertools.cycle(("", "_backward")))
        for written in losses.write(names):
            steps = [self._read.steps[number] for number in written.numbers]
            self._mark(written.op, steps, _phase(steps[0].op))
            if written.values:
                olds = [Value(read_type(old.type), old) for old in written.olds]
                _name_results(written.values[0].owner, olds, written.bias)
        drop_unread(self._block)

    def release(self) -> None:
        """Nothing is asked of it after this."""
        release(self._read, self._units)

    def _kernels(self) -> list[Unit]:
        """The groups that become kernels: of a call that shares no kernel with another call only if it must, or gains.

        It must, too, if it asks an operand for its shape alone (``ones_like``), of which groups know nothing: as a call
        it would wait for the operand, and what waits for the call may be in one kernel with what the operand is made
        from. And if a kernel reads what the call itself does not give: a sum before it is rounded.
        """
        shared = {call for unit in self._units.groups if len(unit.calls) > 1 for call in unit.calls}
        shared |= {step.number for step in self._read.steps if step.always} | self._alone
        shared |= {call for unit in self._units.groups if not unit.accesses for call in unit.calls if self._waits(call)}
        todo = found = {unit for unit in self._units.groups if unit.calls & shared}
        while todo:
            inner = (value for unit in todo for value in unit.accesses if value.ir is None)
            todo = {self._units.maker[value] for value in inner if value in self._units.maker} - found
            found = found | todo
        return [unit for unit in self._units.groups if unit in found]

    def _waits(self, call: int) -> bool:
        """Whether a call has an operand that is computed."""
        return any(not isinstance(value.ir, ir.BlockArgument) for value in self._read.steps[call].operands)

    def _rewrite(self, kernels: list[Unit]) -> None:
        staying = self._staying(kernels)
        self._units.kept |= {v for unit in staying if unit.step for v in unit.step.operands}
        results = {unit: exports(self._units, {unit}) for unit in kernels}
        terminator = list(self._block.operations)[-1].operation
        kept = {unit.step.number for unit in staying if unit.step is not None}
        dead = [step.op for step in self._read.steps if step.number not in kept]
        for unit in ordered([*staying, *kernels], self._sources(staying, kernels)):
            if unit.step is not None:
                move(unit.step.op, terminator)
            elif results[unit]:
                self._write(unit, results[unit], ir.InsertionPoint(terminator))
        check_unread(dead)
        for op in reversed(dead):
            erase(op)
        drop_unread(self._block)

    def _staying(self, kernels: list[Unit]) -> list[Unit]:
        """A unit for each op that stays: also those that lower, but share no kernel with another."""
        fused = {call for unit in kernels for call in unit.calls}
        needed = needed_views(self._read, fused)
        found = []
        for step in self._read.steps:
            if step.number in needed if step.is_view else step.number not in fused:
                found.append(Unit(step))
        return found

    def _sources(self, staying: list[Unit], kernels: list[Unit]) -> dict[Unit, set[Unit]]:
        """What each unit reads from."""
        maker: dict[Value, Unit] = {}
        for unit in staying:
            assert unit.step is not None
            made = [result for result in unit.step.results if result is not None]
            maker.update((value, unit) for value in (*made, *(r.node.out for r in made if r.node is not None)))
        for unit in kernels:
            maker.update((value, unit) for node in unit.nodes for value in (node.out, *node.others))
        read = {
            unit: unit.step.operands if unit.step is not None else list(unit.accesses) for unit in (*staying, *kernels)
        }
        return {unit: {maker[v] for v in values if v in maker} - {unit} for unit, values in read.items()}

    def _write(self, unit: Unit, results: list[Value], ip: ir.InsertionPoint) -> None:
        steps = [self._read.steps[number] for number in sorted(unit.calls)]
        loc = ir.Location.fused([step.op.location for step in steps], context=self._block.owner.context)
        made, op = self._bodies.write(self._name(steps), unit, results, self._read.symbols, loc, ip)
        self._mark(op, steps, _phase(steps[0].op))
        found = {number: v.node.check for number, v in enumerate(results) if v.node is not None and v.node.check}
        if found:
            op.attributes[CHECKS] = write_checks(found, op.context)
        unpack = made[0].owner
        _name_results(unpack, results)
        self._read.symbols.note(unpack, [value.type for value in results])
        for value, new in zip(results, made, strict=True):
            if value.ir is not None:
                value.ir.replace_all_uses_with(new)
            value.ir = new

    def _mark(self, op: ir.Operation, steps: list[Step], phase: ir.Attribute | None) -> None:
        """Says which calls a kernel stands for."""
        context = op.context
        op.attributes["kern.ops"] = ir.ArrayAttr.get([ir.StringAttr.get(s.target, context) for s in steps], context)
        calls = [ir.StringAttr.get(f"{self._number}.{s.number}", context) for s in steps]
        op.attributes["kern.calls"] = ir.ArrayAttr.get(calls, context)
        if phase is not None:
            op.attributes["dist.phase"] = phase
        elif "dist.phase" in op.attributes:  # of the kernel that it is a copy of
            del op.attributes["dist.phase"]

    def _name(self, steps: list[Step]) -> str:
        bases = dict.fromkeys(step.target.split(".")[1].strip("_") for step in steps)
        return f"{'_'.join(list(bases)[:3])}_{next(self._names)}"


def _phase(op: ir.Operation) -> ir.Attribute | None:
    return op.attributes["dist.phase"] if "dist.phase" in op.attributes else None


def _name_results(unpack: ir.Operation, results: list[Value], last: ir.Value | None = None) -> None:
    """The frontend's names of results (``grad:w#1``), and how these lie on the mesh, go to the op that has them now.

    ``last``: what one more result is shown as, which has its last dim alone.
    """
    found, shardings = [], []
    for position, value in enumerate(results):
        attributes = {} if value.ir is None else value.ir.owner.attributes
        if "dist.shardings" in attributes:
            shardings.append(attributes["dist.shardings"][ir.OpResult(value.ir).result_number])
        if "dist.name" not in attributes:
            continue
        owner, number = value.ir.owner, ir.OpResult(value.ir).result_number
        for part in ir.StringAttr(owner.attributes["dist.name"]).value.split(","):
            name, _, index = part.partition("#")
            if int(index or 0) == number:
                found.append(f"{name}#{position}")
    if last is not None and "dist.shardings" in last.owner.attributes:
        mesh, dims, partial = ShardingAttr(last.owner.attributes["dist.shardings"][0]).params
        dims = ir.ArrayAttr.get(list(ir.ArrayAttr(dims))[-1:], unpack.context)
        shardings.append(ShardingAttr.get(mesh, dims, partial, context=unpack.context))
    if found:
        if len(shardings) == len(unpack.results):
            unpack.attributes["dist.shardings"] = ir.ArrayAttr.get(shardings, unpack.context)
        unpack.attributes["dist.name"] = ir.StringAttr.get(",".join(found), unpack.context)
