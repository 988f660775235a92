"""Compilation of a captured step to a rank program: the passes in order, their times and their remarks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from torch_mlir import ir

from shardc.backends.base import Target
from shardc.backends.torch.description import describe_program
from shardc.backends.torch.emit import emit_program
from shardc.compiler.profiling.known import predicted_time
from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.names import is_local
from shardc.cost.schedule_form import ONE_F_ONE_B
from shardc.cost.step.step_time import StepTime
from shardc.diagnostics.base import Remarks, collect_remarks, remark
from shardc.diagnostics.passes.pipeline import NotAPipeline
from shardc.diagnostics.passes.search import SearchWithoutCluster
from shardc.dialects.collection import collection_paused
from shardc.dialects.dist.mesh import Mesh, write_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.frontend.step.spec import Capture
from shardc.options.experts import ROOM_FOR_ALL, Experts
from shardc.options.parallelism import PlanLike
from shardc.options.pipeline import Pipeline
from shardc.options.presets import is_searched
from shardc.options.recompute import Recompute
from shardc.passes.accumulate.torch_accumulate import TorchAccumulate
from shardc.passes.budget.number_forward import compute_again, number_forward
from shardc.passes.budget.read_graph import Choices, read_choices
from shardc.passes.interleave.on_rank import without_rows
from shardc.passes.manager.attributes import edge_key
from shardc.passes.manager.pass_pipelines import build, run
from shardc.passes.manager.program import Program, copy_module, find_function
from shardc.passes.manager.reading import Reading
from shardc.passes.pipeline.pipe_cut import cut_pipeline
from shardc.passes.pipeline.stages.held import Held
from shardc.passes.plan.dist_apply_plan import apply_plan, arguments_of
from shardc.passes.plan.plan import Plan
from shardc.passes.plan.plan_file import plan_to_json
from shardc.passes.plan.style_plan import StylePlan
from shardc.passes.propagate.dist_propagate import DistPropagate
from shardc.passes.reduce.torch_reduce_dtype import TorchReduceDtype
from shardc.passes.search.answer.answer import Answer
from shardc.passes.search.dist_search import DistSearch
from shardc.passes.search.saved import SavedCuts, cuts_in, digest
from shardc.report.device_work import DeviceWork, device_work
from shardc.report.step.step_time import step_time
from shardc.runtime.check import Json
from shardc.runtime.report import progress
from shardc.step.levels import ANNOTATED, GLOBAL, KERNEL, PIPELINE, RANK, Levels
from shardc.step.micro_batches import MicroBatches
from shardc.step.schedule.choose import with_schedule
from shardc.step.schedule.form import schedule_form
from shardc.step.sharding.pass_lists import (
    SHARE,
    passes_to_level_1,
    passes_to_level_2,
    passes_to_level_3,
    recompute_passes,
)
from shardc.step.sharding.plan import make_plan

CutAt = Callable[[ir.Module], Sequence[int] | None]
"""A rank's program before it is cut into stages -> the numbers of the forward's ops before which to cut it
(none: where stages are of equal cost), or None to leave it whole.
"""


def _global(module: ir.Module, micro_batches: MicroBatches | None) -> ir.Module:
    """Return the program for one device. It runs all micro-batches, also if each was to be a program."""
    if micro_batches is None:
        return module
    whole = copy_module(module)
    TorchAccumulate(micro_batches.count, micro_batches.whole).run(whole)
    return whole


@dataclass
class Compiled:
    """Step after all passes.

    ``levels``: all levels, as texts with source lines and as modules. ``library``: the kernels of level 4,
    compiled for ``target``. ``seconds``: time of each pass. ``fusion_effect``: text on the effect of edges
    that the user forbade or forced. ``cluster``: the cluster that the step is compiled for, if known.
    """

    capture: Capture
    mesh: Mesh
    plan: Plan
    plan_json: Mapping[str, object]
    levels: Levels
    remarks: Remarks
    seconds: dict[str, float] = field(default_factory=dict)
    library: Path | None = None
    target: Target | None = None
    fusion_effect: str = ""
    cluster: Cluster | None = None

    @property
    def rank_module(self) -> ir.Module:
        """Level 3, before it is cut into pipeline stages."""
        return self.levels.module(RANK)

    @property
    def pipeline_module(self) -> ir.Module | None:
        """Level 3 with a program for each rank of a pipeline, if the plan has one."""
        return self.levels.module(PIPELINE) if PIPELINE in self.levels else None

    @property
    def kernel_module(self) -> ir.Module | None:
        """Level 4, if ops were fused."""
        return self.levels.module(KERNEL) if KERNEL in self.levels else None

    @cached_property
    def program_text(self) -> str:
        """Python source of the program that each rank runs."""
        return emit_program(self.program)

    @cached_property
    def description(self) -> Json:
        """Description of the program for the manifest."""
        return describe_program(self.program)

    @property
    def program(self) -> ir.Module:
        """Program of each rank: level 4, or level 3 if nothing was fused."""
        return self.kernel_module or self.unfused

    @cached_property
    def unfused(self) -> ir.Module:
        """Program of each rank at level 3."""
        return without_rows(self.pipeline_module or self.rank_module)

    @cached_property
    def global_module(self) -> ir.Module:
        """Level 1: the user's program, for one device."""
        return self.levels.module(GLOBAL)

    @cached_property
    def time(self) -> StepTime | None:
        """Estimated time of a step on its cluster, before fusion; None without a cluster.

        On this machine it is the sum over measured calls, if all calls were measured.
        """
        if self.cluster is None:
            return None
        measured = None
        if is_local(self.cluster.name) and (self.target is None or self.target.runs_on_host):
            measured = predicted_time(self.program, self.mesh.world_size)
        return measured or step_time(self.unfused, self.cluster)

    @cached_property
    def searched(self) -> Answer | None:
        """Result of the search for the plan; None if the plan was given."""
        return Answer.read(self.rank_module)

    @cached_property
    def work(self) -> DeviceWork:
        """Work of a device, compared with the single-device program."""
        return device_work(self.global_module, self.rank_module, self.plan.pipeline)


def _lay_out(
    reading: Reading, mesh: Mesh, plan: PlanLike | StylePlan | Plan, model_plan: Mapping[str, str] | None
) -> Plan:
    """Write the mesh into a step's module. Return the plan of the step."""
    write_mesh(reading.module, mesh)
    assert reading.program is not None
    return make_plan(plan, reading.program, mesh, model_plan)


def _as_found(module: ir.Module, mesh: Mesh, asked: Plan) -> Plan:
    """Return the layouts that a search gave a step's arguments, as a plan for programs on the same state."""
    function = find_function(module)
    assert function is not None
    codec, found = ShardingCodec(module.context, mesh), Plan(asked.text, pipeline=asked.pipeline)
    for position, attributes in enumerate(ir.ArrayAttr(function.attributes["arg_attrs"])):
        key = edge_key(function, "arg_attrs", position)
        dims = codec.read(ir.DictAttr(attributes)["dist.sharding"]).dims
        found.say(key, tuple(tuple(axis.name for axis in dim) for dim in dims), closed=True, why="searched")
    return found


def _saved_cuts(plan: Plan, program: Program) -> SavedCuts | None:
    """Return the cuts of a saved plan. If they belong to another step's calls, return None with a remark."""
    if plan.cuts is None:
        return None
    found = SavedCuts.of_json(plan.cuts)
    if found.program == digest(program):
        return found
    what = "the saved plan's choices for calls are not used, because this step has other calls"
    remark("CutsLeft", f"{what}: only the plan's layouts of arguments decide")
    return None


def _search(search: DistSearch, saved: SavedCuts | None, cluster: Cluster | None) -> DistSearch:
    """Return the pass that finds the cuts of calls, or writes saved ones. Raises SearchWithoutCluster."""
    if saved is None and cluster is None:
        raise SearchWithoutCluster()
    return replace(search, on=cluster, saved=saved or search.saved)


def _change(
    capture: Capture,
    recompute: Recompute | frozenset[int],
    reduce_dtype: str | None,
    passed: Callable[[str, ir.Module], None] | None = None,
) -> None:
    """Apply the options that change the single-device program: recomputation, and the dtype of sums."""
    module = capture.module
    if isinstance(recompute, frozenset):
        compute_again(module, recompute)
        if passed is not None:
            passed("torch-recompute", module)
        run(module, build(SHARE), after_pass=passed)
    elif capture.noted:
        run(module, recompute_passes(recompute), after_pass=passed)
    if reduce_dtype is not None:
        run(module, [TorchReduceDtype()], after_pass=passed)


def ingest_capture(
    capture: Capture, *, recompute: Recompute = "none", reduce_dtype: str | None = None
) -> Reading:
    """Return a captured step at level 1, with what is recomputed. This changes the capture's module."""
    with collect_remarks(), collection_paused():
        run(capture.module, passes_to_level_1(ROOM_FOR_ALL))
        _change(capture, recompute, reduce_dtype)
    return Reading(capture.module)


def lay_out(reading: Reading, mesh: Mesh, plan: str) -> tuple[Plan, Reading]:
    """Give a step at level 1 a mesh and a plan, up to the choice of each call's sharding.

    Return the plan, and the step as it is then. It is the same reading if only attributes changed.
    """
    with collect_remarks(), collection_paused():
        chosen = _lay_out(reading, mesh, plan, None)
        assert reading.program is not None
        apply_plan(reading.program, mesh, chosen)
        steps = passes_to_level_2(True, ROOM_FOR_ALL)
        before = steps[: next(n for n, step in enumerate(steps) if isinstance(step, DistPropagate))]
        return chosen, run(reading.module, before, verify_each=False, reading=reading)


@progress.phase("what a budget keeps")
def capture_choices(
    capture: Capture,
    mesh: Mesh,
    plan: PlanLike | StylePlan | Plan,
    *,
    model_plan: Mapping[str, str] | None = None,
    micro_batches: MicroBatches | None = None,
    reduce_dtype: str | None = None,
    reshard_after_forward: bool = True,
    experts: Experts = ROOM_FOR_ALL,
) -> Choices:
    """Return the ops of a captured step that can be recomputed, with their sizes and work per device.

    The arguments are those of :func:`compile_capture`. Like it, this changes the capture's module.
    """
    module = capture.module
    with collect_remarks(), collection_paused():
        run(module, passes_to_level_1(experts))
        calls = number_forward(module)
        if reduce_dtype is not None:
            run(module, [TorchReduceDtype()])
        planned = mesh if micro_batches is None else Mesh(mesh.space)
        reading = Reading(module)
        chosen = _lay_out(reading, planned, plan, model_plan)
        assert reading.program is not None
        apply_plan(reading.program, planned, chosen)
        passes = passes_to_level_2(reshard_after_forward, experts)
        run(module, passes, verify_each=False, reading=reading)
        return read_choices(module, calls)


@progress.phase("passes")
def compile_capture(
    capture: Capture,
    mesh: Mesh,
    plan: PlanLike | StylePlan | Plan,
    *,
    model_plan: Mapping[str, str] | None = None,
    pipeline: Pipeline | None = None,
    micro_batches: MicroBatches | None = None,
    cluster: Cluster | None = None,
    held: Held | None = None,
    recompute: Recompute | frozenset[int] = "none",
    reduce_dtype: str | None = None,
    reshard_after_forward: bool = True,
    experts: Experts = ROOM_FOR_ALL,
    verify: bool = True,
    search: DistSearch | None = None,
    cut_at: CutAt | None = None,
) -> Compiled:
    """Run every pass on a captured step. If the plan has a pipeline, cut the step by the options
    ``pipeline``.

    ``micro_batches``: set if the capture is the first of several separate micro-batches. ``cluster``: its
    links decide which collectives change a layout. ``held``: for a forward over a pipeline's tensors, what
    its ranks hold. ``recompute``: the policy of backward for modules that the capture noted or for stages, or
    the numbers of the forward's ops to recompute (:mod:`shardc.passes.budget.number_forward`).
    ``reduce_dtype``: ``float32`` to sum 16-bit gradients in f32. ``reshard_after_forward``: gather parameters
    again in backward. ``experts``: how rows travel to experts on other devices. ``verify``: check the
    contract of each level. ``search``: time limit of a search for the plan, whether Ctrl-C ends it, and the
    result of an earlier one.
    ``cut_at``: returns where to cut the step into stages, or None to leave it whole.
    Raises NotAPipeline for options of a pipeline if the plan has none.
    """
    seconds: dict[str, float] = {"trace": capture.trace_s, "import": capture.import_s}
    module, levels, started = capture.module, Levels(), time.perf_counter()

    def passed(name: str, _: ir.Module) -> None:
        nonlocal started
        started, before = time.perf_counter(), started
        seconds[name] = seconds.get(name, 0.0) + started - before
        if name == "dist-insert-reshards":
            levels.keep(ANNOTATED, module)

    with collect_remarks() as remarks, collection_paused():
        run(module, passes_to_level_1(experts), after_pass=passed)
        levels.keep(GLOBAL, _global(module, micro_batches))
        _change(capture, recompute, reduce_dtype, passed)
        planned = mesh if micro_batches is None else Mesh(mesh.space)
        reading = Reading(module)
        chosen, program = _lay_out(reading, planned, plan, model_plan), reading.program
        assert program is not None
        arguments = arguments_of(program)
        saved_cuts, searcher, before = _saved_cuts(chosen, program), None, ""
        if saved_cuts is not None:
            chosen = make_plan(chosen.text, program, planned, model_plan)
        if saved_cuts is not None or is_searched(plan):
            ranks = planned.size(chosen.pipeline) if chosen.pipeline else 1
            form = schedule_form(pipeline, ranks) or ONE_F_ONE_B
            speeds = (pipeline and pipeline.speeds) or ()
            searcher = replace(search or DistSearch(), form=form, speeds=speeds, pipeline=chosen.pipeline)
            searcher = _search(searcher, saved_cuts, cluster)
            before = digest(program)
        chosen.cuts = None
        apply_plan(program, planned, chosen)
        passed("dist-apply-plan", module)
        kept = reshard_after_forward, experts
        passes = passes_to_level_3(chosen.pipeline, micro_batches, cluster, *kept, verify, searcher)
        cuts: SavedCuts | None = None
        if searcher is not None:
            at = passes.index(searcher) + 1
            run(module, passes[:at], verify_each=False, after_pass=passed, reading=reading)
            passes, reading = passes[at:], Reading(module)
            assert reading.program is not None
            cuts = cuts_in(reading.program, planned, chosen.pipeline, before)
        run(module, passes, verify_each=False, after_pass=passed, reading=reading)
        levels.keep(RANK, module)
        if cuts is not None:
            chosen = _as_found(module, planned, chosen)
            chosen.cuts = cuts.json
        saved = plan_to_json(chosen, planned, arguments, "" if cluster is None else cluster.name)
        chosen.cuts = None  # cuts are for this program's calls; ``saved`` has them
        compiled = Compiled(capture, mesh, chosen, saved, levels, remarks, seconds, cluster=cluster)
        places = () if cut_at is None else cut_at(module)
        if chosen.pipeline and places is not None:
            cut = copy_module(module)
            policies = "none" if capture.noted or isinstance(recompute, frozenset) else recompute
            stages = pipeline or Pipeline()
            if held is None:
                stages = with_schedule(cut, chosen.pipeline, stages, policies, cluster)
            cut_pipeline(cut, chosen.pipeline, stages, held, policies, places)
            passed("pipe-cut", cut)
            run(cut, build("dist-combine"), after_pass=passed)
            levels.keep(PIPELINE, cut)
        elif pipeline is not None and not chosen.pipeline:
            raise NotAPipeline(plan=chosen.text)
    return compiled
