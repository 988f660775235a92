"""Price of a pipeline, predicted from stages with fewer equal layers, and from fewer micro-batches.

Two programs that are not cut, with two and with three of the equal layers, say where the whole model is cut
into stages. The stages are then compiled with two whole layers each, and with three, at the same places
within a layer. A schedule repeats its steady state, so a few micro-batches more than stages have the memory
of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from torch_mlir import ir

from shardc.backends.torch.memory.dry_run import Peak
from shardc.cost.schedule_form import ONE_F_ONE_B, ScheduleForm
from shardc.cost.step.work import Deeper, StepWork
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.cuts.balance import Forward
from shardc.passes.pipeline.cuts.repeated import Repeated
from shardc.passes.pipeline.cuts.towers import Towers
from shardc.passes.pipeline.stages.assign_stages import forward_of
from shardc.passes.pipeline.stages.step_program import read_step
from shardc.planning.bounds.holdings import Holding, holdings, of_stages, of_whole
from shardc.planning.depth.blend import Blend, NotAffine
from shardc.planning.depth.few import FEW, MORE
from shardc.planning.memory import RankMemory
from shardc.planning.price import Priced
from shardc.step.shard import CutAt
from shardc.workers.forked import concurrently

BEYOND = 2
"""Least number of micro-batches beyond one for each stage: those of the schedule's steady state."""


class Compile(Protocol):
    """Price with so many equal layers, of all micro-batches or of the few; ``cut_at`` is as in a compile."""

    def __call__(self, layers: int, cut_at: CutAt, *, is_few: bool) -> Priced: ...


@dataclass(frozen=True)
class Sizes:
    """Sizes of a pipeline: equal layers of the model, ranks, micro-batches, and those that are compiled.

    ``form``: the schedule. With several stages on a rank, stage ``i`` is on rank ``i % ranks``.
    """

    layers: int
    ranks: int
    micro_batches: int
    few: int
    form: ScheduleForm = ONE_F_ONE_B

    @property
    def stages(self) -> int:
        return self.ranks * self.form.per_rank


def fewest(ranks: int, micro_batches: int, form: ScheduleForm = ONE_F_ONE_B) -> int:
    """Return the least number of ``micro_batches`` that fills a pipeline of ``ranks``.

    Stages that are interleaved take groups of ``ranks`` micro-batches, of which the second is the first that
    begins and ends beside others. Evictions of activations repeat with the ranks, too.
    """
    has_groups = form.per_rank > 1 or form.balances
    return min(3 * ranks if has_groups else ranks + BEYOND, micro_batches)


@dataclass(frozen=True)
class Uncut:
    """A pipeline before it is cut: two programs of :data:`FEW` and of :data:`MORE` layers without stages.

    ``whole``: the forward of all layers. ``cuts``: where it is cut. ``held``: what each stage holds.
    """

    shallow: Priced
    deeper: Priced
    whole: Repeated
    cuts: Sequence[int]
    held: Sequence[Holding]


def uncut(compiled: Compile, sizes: Sizes) -> Uncut:
    """Return a pipeline before it is cut. Raises NotAffine, and what a compile raises."""
    forwards: list[tuple[Forward, list[Holding]]] = []

    def look(module: ir.Module) -> None:
        program = read_step(module)
        forward = forward_of(program)
        forwards.append((forward, holdings(program, forward)))

    shallow, deeper = (compiled(count, look, is_few=False) for count in (FEW, MORE))
    (fewer, held), (longer, more_held) = forwards
    whole = Repeated.between(fewer, longer, sizes.layers - FEW)
    if whole is None:
        raise NotAffine("the calls of its layers do not repeat")
    if (
        sizes.form.per_rank == 1
        and Towers(longer.sources, longer.work, sizes.stages, whole.runs(longer)).found
    ):
        raise NotAffine("its stages may be beside each other")
    cuts = whole.forward.balanced(sizes.stages)
    return Uncut(shallow, deeper, whole, cuts, of_stages(of_whole(held, more_held, whole), cuts))


def staged(compiled: Compile, looked: Uncut, sizes: Sizes, schedule: Schedule) -> Priced:
    """Return the price of a pipeline by a ``schedule`` of all micro-batches.

    Raises NotAffine, and what a compile raises.
    """
    shallow, deeper, whole, cuts = looked.shallow, looked.deeper, looked.whole, looked.cuts
    left_out = [_alike(whole.left_out(cuts, kept), sizes.ranks) for kept in (FEW, MORE)]
    if sum(map(sum, left_out)) <= sizes.layers:  # two programs have as many layers as all
        left_out = [[0] * sizes.stages]
        if sizes.few == sizes.micro_batches:
            raise NotAffine("its stages have too few equal layers, and it has few micro-batches")
    programs = [
        partial(compiled, sizes.layers - sum(out), _at(whole, cuts, out), is_few=True) for out in left_out
    ]
    found = concurrently(programs)
    blend = Blend((sizes.layers - FEW,))
    return replace(
        shallow,
        memory=[_with_inputs(rank, sizes) for rank in _memory(found, left_out[0][: sizes.ranks])],
        work=blend.work(shallow.work, [deeper.work]),
        transfers=blend.transfers(shallow.transfers, [deeper.transfers]),
        step=_repeated(found[0].step, sizes),
        placement=found[0].placement,
        schedule=schedule,
        pipe=found[0].pipe,
        remarks=found[0].remarks,
        stages=Deeper(_repeated(found[-1].step, sizes), tuple(left_out[0])),
    )


def _at(whole: Repeated, cuts: Sequence[int], left_out: Sequence[int]) -> Callable[[ir.Module], list[int]]:
    """Return what cuts a model that leaves out so many layers of each stage at the same places."""

    def cut_at(module: ir.Module) -> list[int]:
        if not whole.is_shortened(forward_of(read_step(module)), sum(left_out)):
            raise NotAffine("the calls of its layers are not those of fewer layers")
        return whole.moved(cuts, left_out)

    return cut_at


def _alike(left_out: Sequence[int], ranks: int) -> list[int]:
    """Return how many layers stages leave out if those of a rank leave out equally many."""
    return [min(left_out[stage % ranks :: ranks]) for stage in range(len(left_out))]


def _memory(found: Sequence[Priced], left_out: Sequence[int]) -> list[RankMemory]:
    shallow, deeper = found[0].memory, found[-1].memory
    return [
        Blend((more,), by_call=True).memory(rank, [longer]) if more else rank
        for rank, longer, more in zip(shallow, deeper, left_out, strict=True)
    ]


def _with_inputs(rank: RankMemory, sizes: Sizes) -> RankMemory:
    """Return the memory with the inputs of all micro-batches."""
    few = rank.given.get("input", 0)
    more = few * sizes.micro_batches // sizes.few - few
    peak = rank.peak
    if isinstance(peak, Peak):
        peak = replace(peak, size_bytes=peak.size_bytes + more, given_bytes=peak.given_bytes + more)
    arguments = [
        replace(argument, size_bytes=argument.size_bytes * sizes.micro_batches // sizes.few)
        if argument.role == "input"
        else argument
        for argument in rank.arguments
    ]
    given = {**rank.given, "input": few + more} if few else rank.given
    return replace(rank, given=given, peak=peak, arguments=arguments, reserved=rank.reserved_bytes + more)


def _repeated(step: StepWork, sizes: Sizes) -> StepWork:
    """Return the work with as many runs of a loop over micro-batches as there really are."""
    ranks = tuple(
        tuple(
            replace(section, times=sizes.micro_batches) if section.times == sizes.few else section
            for section in sections
        )
        for sections in step.ranks
    )
    return replace(step, ranks=ranks)
