"""``pipe-cut``: splits the step into stages, and writes a program for each rank of the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from torch_mlir import ir

from shardc.diagnostics.dialects.levels import LevelBroken
from shardc.diagnostics.passes.pipeline import (
    BadScheduleFile,
    NoMicroBatches,
)
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.pipe.csv_form import read_csv
from shardc.dialects.pipe.kept import MODULES, Kept, note_kept
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.schedule_op import write_schedule
from shardc.options.pipeline import Pipeline
from shardc.options.recompute import policies_of
from shardc.options.schedules import AUTO
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import micro_batches_apart
from shardc.passes.pipeline.checks.check_options import check_options, check_program, check_sizes
from shardc.passes.pipeline.checks.check_rank_programs import check_rank_programs
from shardc.passes.pipeline.checks.check_schedule import check_schedule
from shardc.passes.pipeline.cuts.balance import Forward
from shardc.passes.pipeline.cuts.fit_memory import fit_memory
from shardc.passes.pipeline.cuts.stage_memory import held_by_ranks
from shardc.passes.pipeline.cuts.tower_cuts import TowerCuts
from shardc.passes.pipeline.ranks.collective_bodies import find_reductions, hoist_gathers, write_collective
from shardc.passes.pipeline.ranks.rank_programs import results_of, write_rank_programs
from shardc.passes.pipeline.schedules import by_name
from shardc.passes.pipeline.schedules.balance_activations import balance_activations, evict_within
from shardc.passes.pipeline.schedules.for_graph import for_graph
from shardc.passes.pipeline.schedules.forward_alone import SUFFIX, forward_alone
from shardc.passes.pipeline.schedules.registry import named_schedule
from shardc.passes.pipeline.stages.activations import kept_before, kept_bytes
from shardc.passes.pipeline.stages.assign_stages import assign_stages, forward_of
from shardc.passes.pipeline.stages.held import Held
from shardc.passes.pipeline.stages.keep_sent import keep_sent
from shardc.passes.pipeline.stages.sliced_bodies import slice_bodies, write_sliced
from shardc.passes.pipeline.stages.stage_bodies import stage_bodies, write_bodies
from shardc.passes.pipeline.stages.step_program import read_step, trains
from shardc.passes.pipeline.stages.token_slices import slice_tokens
from shardc.passes.pipeline.stages.weight_updates import StageUpdate, UpdateFinder, write_update


@dataclass(frozen=True)
class PipeCut(Pass):
    """Splits a step of level 3 into stages, and writes the program of each rank along the mesh axis ``axis``.

    The pass splits the step's loop over micro-batches, which are the mesh's time axis. It cuts forward before
    the modules ``cuts`` or, if none are named, into ``stages`` of equal cost (0: the fewest that ``schedule``
    allows). Every backward op goes to the stage of its forward; it is W if only gradients of parameters need
    it. Schedules of slices also split dim 1 of the inputs, with a body for each slice. In a program without
    backward only the forwards of the schedule run.

    ``stale-weights``: allow schedules that change the mathematics. ``recompute``: ``none``, ``full`` or
    ``selective``, one for all stages or one for each (:mod:`shardc.passes.pipeline.stages.recompute`).
    ``gather``: when to gather parameters that are split over other axes: for each ``micro-batch``, or once
    for the ``step``. ``memory-limit-bytes``: limit of a device's parameters, gradients, optimizer state and
    activations, within which stages are balanced; 0 for no limit. ``schedule=auto`` assumes stages of equal
    cost; ``compile_step`` uses the costs of a cluster (:mod:`shardc.step.schedule`). ``speeds``: relative
    speed of each rank; a stage's cost is proportional to it. Default: equal.
    """

    name: ClassVar[str] = "pipe-cut"
    axis: str = "pipe"
    schedule: str = "1f1b"
    stages: int = 0
    cuts: tuple[str, ...] = ()
    stale_weights: bool = False
    gather: str = "micro-batch"
    recompute: tuple[str, ...] = ("none",)
    memory_limit_bytes: int = 0
    speeds: tuple[float, ...] = ()
    balance_activations: bool = False

    def run(self, module: ir.Module) -> None:
        options = Pipeline(
            schedule=self.schedule,
            stages=self.cuts or self.stages or None,
            stale_weights=self.stale_weights,
            memory_limit_bytes=self.memory_limit_bytes or None,
            gather=self.gather,  # type: ignore[arg-type]
            speeds=self.speeds or None,
            balance_activations=self.balance_activations,
        )
        recompute = self.recompute[0] if len(self.recompute) == 1 else self.recompute
        cut_pipeline(module, self.axis, options, recompute=recompute)


def cut_pipeline(
    module: ir.Module,
    axis: str,
    options: Pipeline,
    held: Held | None = None,
    recompute: str | Sequence[str] = "none",
    places: Sequence[int] = (),
) -> None:
    """Split the step of level 3 into stages along the mesh axis ``axis``.

    ``recompute`` is a policy for all stages, or one for each. ``held`` says where a running pipeline holds
    the parameters and buffers that a forward reads; its schedule and stages are then used. ``places`` are
    numbers of the forward's ops before which to cut, if they are known. A schedule's name stands for the one
    that is made for the stages' graph. Raises BadScheduleFile, and the errors of schedule names and of
    :func:`cut_into_stages`.
    """
    schedule, path = options.schedule, options.schedule_path
    if held is not None:
        schedule = held.schedule
    elif path is not None:
        schedule = _from_file(path)
    elif isinstance(schedule, str):
        schedule = _named(module, axis, schedule, options.stage_count)
    assert isinstance(schedule, Schedule)
    cut_into_stages(
        module,
        schedule,
        axis,
        () if held else options.cuts,
        0 if held else options.stage_count,
        recompute,
        options.memory_limit_bytes or 0,
        stale_weights=options.stale_weights,
        gather=options.gather,
        held=held,
        speeds=options.speeds or (),
        places=places,
        named=held is None
        and path is None
        and isinstance(options.schedule, str)
        and options.schedule != AUTO,
        balances=options.balance_activations and held is None,
    )


def _from_file(path: Path) -> Schedule:
    try:
        return read_csv(path.read_text(), path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise BadScheduleFile(path=path, problem=str(error), where=str(path)) from None


def _named(module: ir.Module, axis: str, name: str, stages: int) -> Schedule:
    """Return the schedule ``name`` for the pipeline of ``module`` along ``axis``; 0 ``stages`` means the
    fewest.
    """
    ranks, micro_batches = pipeline_sizes(module, axis)
    fewest = 1 if name == AUTO else named_schedule(name).fewest
    return by_name.schedule(name, stages or fewest * ranks, micro_batches, ranks=ranks)


def cut_into_stages(
    module: ir.Module,
    schedule: Schedule,
    axis: str,
    cuts: Sequence[str] = (),
    wanted: int = 0,
    policies: str | Sequence[str] = "none",
    memory_limit_bytes: float = 0.0,
    *,
    stale_weights: bool = False,
    gather: str = "micro-batch",
    held: Held | None = None,
    speeds: Sequence[float] = (),
    places: Sequence[int] = (),
    named: bool = False,
    balances: bool = False,
) -> None:
    """Rewrite the step of ``module`` for ``schedule``, which may be a user's; it is checked first.

    If the program does not train, only the forwards of ``schedule`` run; recomputation and the memory limit,
    which concern values kept for backward, have no effect. ``held`` says where another pipeline holds the
    parameters and buffers; stages are then cut to match it. ``wanted`` is the required number of stages, 0
    for any. ``policies`` are of recomputation, one for all stages or one for each. ``memory_limit_bytes`` is
    0 for no limit. ``places`` are known cuts, as numbers of ops. ``named``: the schedule is the one of its
    name, which is made again for stages that are no chain. ``balances``: whether ranks that hold many
    activations keep some on others. The other options are those of
    :class:`shardc.options.pipeline.Pipeline`. Raises BadSchedule, WrongStages, WrongRecompute, NoCutFits,
    ScheduleNotYet, ChangesMathematics, OneRouteOnly, OneUpdateForAll, StageNotRead, NotCausal, NoSequence,
    TooFewTokens, BadSliceLengths, and what reading and splitting the step raise.
    """
    ranks, micro_batches = pipeline_sizes(module, axis)
    stages = len(schedule.routes[0])
    is_training = trains(module)
    if not is_training:
        schedule, policies, memory_limit_bytes = forward_alone(schedule), "none", 0.0
    check_options(
        schedule,
        policies,
        memory_limit_bytes,
        gather,
        apart=micro_batches_apart(module) > 0,
        balances=balances,
        stale_weights=stale_weights,
    )
    check_sizes(schedule, ranks, micro_batches, wanted or (len(cuts) + 1 if cuts else stages))
    check_schedule(schedule, trains=is_training)
    policies = policies_of(policies, stages)
    program = read_step(module)
    check_program(schedule, program)
    forward = forward_of(program)
    if speeds:
        forward.speeds = [speeds[schedule.rank_of[stage]] for stage in schedule.route(0)]
    kinds: dict[int, set[str]] = {}
    for action in schedule.actions():
        kinds.setdefault(schedule.route(action.micro_batch).index(action.stage), set()).add(action.kind)
    name = schedule.name.removesuffix(SUFFIX)
    beside = bool(schedule.reads) or (named and named_schedule(name).takes_graphs)
    towers = None
    if beside and not places:
        towers = TowerCuts.of(program, forward, stages, micro_batches)
        forward = towers.forward
    if not places:
        places = [] if memory_limit_bytes and not cuts else _places(forward, stages, cuts, held, towers)
    if memory_limit_bytes:
        limit = memory_limit_bytes, balances
        places = fit_memory(program, forward, schedule, policies, kinds, *limit, named=places)
    keep_sent(program, forward, places)
    assignment = assign_stages(program, forward, places, beside=beside)
    bodies = stage_bodies(program, assignment, kinds)
    kept = [kept_bytes(program, assignment, bodies, policies), kept_before(program, assignment, bodies)]
    again = [MODULES if program.originals and policy == "none" else policy for policy in policies]
    if any(policy != "none" for policy in policies):
        assignment = assign_stages(program, forward, places, policies, beside=beside)
        bodies = stage_bodies(program, assignment, kinds)
    schedule = for_graph(schedule, bodies.graph, named=named)
    if schedule.graph != bodies.graph:
        bodies = stage_bodies(program, assignment, kinds, schedule.graph)
    if balances and is_training and memory_limit_bytes:
        state = [rank.state_bytes for rank in held_by_ranks(program, bodies, kept[0], schedule)]
        schedule = evict_within(schedule, kept[0], state, memory_limit_bytes)
    elif balances and is_training:
        schedule = balance_activations(schedule)
    gathers = hoist_gathers(program, bodies) if gather == "step" else {}
    ip = ir.InsertionPoint(program.function)
    mesh = read_mesh(module)
    assert mesh is not None
    if schedule.slices > 1:
        slices = slice_tokens(program, assignment.free, schedule)
        schedule = replace(schedule, lengths=slices.lengths)
        bodies = slice_bodies(bodies, assignment, slices)
    write_schedule(module, schedule, axis, ip)
    if schedule.slices > 1:
        write_sliced(program, bodies, ip, ShardingCodec(module.context, mesh))
    else:
        write_bodies(program, bodies, ip)
        note_kept(module, list(map(Kept, again, *kept)))
    updates: dict[int, StageUpdate] = {}
    if schedule.changes_mathematics:
        returned = [(value, key) for value, key, _ in results_of(program)]
        updates = UpdateFinder(program, bodies.bodies.values(), assignment.folds, returned).find()
    for update in updates.values():
        write_update(program, update, ip)
    results = [value for value, _, _ in results_of(program)]
    collectives = [*gathers.values(), *find_reductions(program, assignment.folds, schedule, results).values()]
    for body in collectives:
        write_collective(program, body, ip)
    there = None if held is None else held.ranks
    write_rank_programs(program, bodies, assignment, schedule, updates, collectives, ip, there)
    program.function.erase()
    module.operation.verify()
    check_rank_programs(module)


def _places(
    forward: Forward, stages: int, cuts: Sequence[str], held: Held | None, towers: TowerCuts | None
) -> list[int]:
    """Return the numbers of the ops before which the forward is cut."""
    if held is None and not cuts:
        return forward.balanced(stages) if towers is None else towers.balanced()
    if held is not None:
        options = forward.at_home(stages, held.stages)
        found = list(map(forward.fewest_sent, options))
    else:
        found, options = forward.named(cuts), forward.places_for(cuts)
    return found if towers is None else towers.beside(found, options)


def pipeline_sizes(module: ir.Module, axis: str) -> tuple[int, int]:
    """Return the number of the pipeline's ranks and the number of micro-batches."""
    mesh = read_mesh(module)
    if mesh is None or all(a.name != axis for a in mesh.space):
        raise LevelBroken(level=3, problem=f"pipe-cut needs a mesh with the axis {axis!r}")
    times = [a.size for a in mesh.axes if a.kind == "time"]
    if len(times) != 1:
        raise NoMicroBatches()
    return mesh.size(axis), times[0]
