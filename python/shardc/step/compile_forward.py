"""``shardc.compile_forward``: a model's forward alone, in eval mode, compiled for a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from shardc.artefact.manifest import ManifestFields, build_manifest, describe_batch, fingerprint
from shardc.backends.eager.proof.compare import prove_step
from shardc.backends.eager.proof.comparison import Proof
from shardc.backends.torch.check_program import check_program
from shardc.backends.torch.description import describe_kernels
from shardc.backends.torch.emit import emit_program
from shardc.diagnostics.api import BadArgument, MeshIsNotTheWorld, NotEqual
from shardc.diagnostics.base import collect_remarks
from shardc.dialects.collection import collection_paused
from shardc.dialects.context import new_context
from shardc.frontend.step.forward import Evaluated, OutputTree, capture_forward
from shardc.frontend.step.model_state import model_state
from shardc.options.field import describe
from shardc.options.parallelism import PlanLike
from shardc.options.step import StepOptions
from shardc.passes.pipeline.stages.held import Held
from shardc.passes.plan.plan import Plan
from shardc.report.plan_report import Report, make_report
from shardc.runtime.arguments import whole_number
from shardc.runtime.comm.layout import Leaf
from shardc.runtime.kernels.loaders import Kernels as Library
from shardc.runtime.outputs import Result, StepResult
from shardc.runtime.program import Program
from shardc.runtime.state import Shared, State
from shardc.runtime.step import TrainStep
from shardc.step.arguments import check_arguments, world_size
from shardc.step.elsewhere import elsewhere
from shardc.step.foreign.resolve import resolve_plan
from shardc.step.fuse_step import check_no_force, step_target
from shardc.step.once import Request
from shardc.step.shard import Compiled
from shardc.step.sharding.mesh import mesh_of
from shardc.step.sharding.plan import model_plan_of
from shardc.step.share_state import OTHERS
from shardc.step.values import example_inputs

STATE = ("param", "buffer")


@dataclass(eq=False, repr=False)
class CompiledForward:
    """Forward that :func:`shardc.compile_forward` returns.

    Call it with a batch under torchrun. Its plan can be printed and its program checked without torchrun.

    The forward owns its tensors, laid out by its own plan. They are copied from the model at the first call;
    :meth:`take_from` updates them.

    Example:
        >>> forward = shardc.compile_forward(model, batch[:1], mesh={"data": 1})
        >>> forward(batch[:1]).shape
        torch.Size([8, 4])
    """

    compiled: Compiled
    _fields: ManifestFields
    _batch: object
    _tree: OutputTree | None
    _device: str | None = None
    _over: State | None = None
    _running: TrainStep | None = field(default=None, init=False)

    @property
    def plan(self) -> Report:
        """Report of each tensor's sharding with its reason, and of the bytes that a device sends."""
        c = self.compiled
        kernels, remarks = describe_kernels(c.program), list(c.remarks)
        return make_report(c.rank_module, c.plan.text, remarks, c.seconds, kernels, work=c.work)

    def check(self, steps: int = 1) -> Proof:
        """Compare the program on simulated ranks with the single-device forward.

        Outputs are compared in f64, to 1e-9, and in the program's own precision with its compiled kernels.

        Args:
            steps: Number of forwards to compare, at least 1.

        Raises:
            NoValues: The model is on the meta device.
        """
        whole_number(steps, "steps")
        c = self.compiled
        held = None if self._over is None else _shown(self._over)
        inputs = example_inputs(c.capture, None, self._batch, held=held)
        on_host = c.target is not None and c.target.runs_on_host
        library = self._kernels() if on_host else None
        if c.pipeline_module is not None:
            check_program(c.program_text, c.program)
        return prove_step(c.global_module, c.program, inputs, steps=steps, library=library)

    def __call__(self, batch: object) -> object:
        """Compute the model's output on a global batch.

        Args:
            batch: A global batch, the same on all ranks, of the example's shapes.

        Returns:
            The output in the model's own containers; its tensors are DTensors on several devices.

        Raises:
            BatchMismatch: The batch has other leaves, shapes or dtypes than the example.
        """
        found = self.result(batch)
        return self._tree.filled(found.outputs) if isinstance(found, StepResult) and self._tree else found

    def result(self, batch: object) -> Result:
        """Compute everything that the program returns: its tensors by name, and the loss if it has one.

        Args:
            batch: A global batch, the same on all ranks, of the example's shapes.
        """
        return self.running.step(batch)

    def take_from(self, source: object) -> None:
        """Copy parameters and buffers from another program or a model, through memory.

        All ranks must call it together.

        Args:
            source: A step, another forward, or a model. Its plan and mesh may differ; its processes may not.

        Raises:
            BadArgument: ``source`` is something else.
            StateMismatch: ``source`` has other tensors than this forward's model.
        """
        take(self.running, source)

    @property
    def running(self) -> TrainStep:
        """Running program, which has joined the processes of the other ranks."""
        if self._running is None:
            c = self.compiled
            manifest = build_manifest(
                c.program, self._fields, "" if c.target is None else c.target.described()
            )
            values = c.capture.initial_values()
            self._running = TrainStep(
                Program.of(emit_program(c.program), self._kernels()),
                manifest,
                c.capture.constants,
                state=None if self._over else {n: v for (_, n), v in values.items() if v is not None},
                device=self._device,
                shared=None if self._over is None else shared_with(self._over, manifest),
            )
        return self._running

    def _kernels(self) -> Library | None:
        c = self.compiled
        return None if c.library is None or c.target is None else c.target.load(c.library)


def _shown(state: State) -> dict[str, Tensor]:
    """Return a running step's parameters and buffers, with stand-ins for those on other pipeline ranks."""
    leaves = {name: leaf for name, leaf in state.every.items() if leaf.role in STATE}
    likes = {n: torch.empty(leaf.shape, dtype=leaf.dtype, device="meta") for n, leaf in leaves.items()}
    return {**{n: elsewhere(like, n, OTHERS) for n, like in likes.items()}, **state.dtensors(*STATE)}


def shared_with(state: State, manifest: Mapping[str, list[dict]]) -> dict[str, Shared]:
    """Return where a forward finds each of its parameters and buffers in a running step's state."""
    leaves = [Leaf.read(entry) for entry in manifest["arguments"]]
    return {leaf.name: (state, leaf.name) for leaf in leaves if leaf.role in STATE}


def take(into: TrainStep, source: object) -> None:
    """Copy the parameters and buffers of ``source`` into a running program, one tensor at a time."""
    if isinstance(source, torch.nn.Module):
        read = model_state(source)
        values: dict[str, Tensor] = {**read.params, **read.buffers}
        known = {name for name, leaf in into.state.every.items() if leaf.role in STATE}
        into.state.assign({name: value for name, value in values.items() if name in known}, {})
        return
    running = getattr(source, "running", source)
    if not isinstance(running, TrainStep):
        expected = "a compiled step, a compiled forward or a model"
        hint = "as in forward.take_from(step)"
        raise BadArgument(argument="source", given=describe(source), expected=expected, hint=hint)
    into.state.take(running.state, *STATE)


def compile_forward(
    model: torch.nn.Module | torch.export.ExportedProgram,
    example: object,
    *,
    mesh: Mapping[str, int] | None = None,
    plan: PlanLike | None = None,
    **options: object,
) -> CompiledForward:
    """Compile a model's forward in eval mode (dropout off, buffers only read) for a mesh.

    Args:
        model: Any ``nn.Module``, or a program of ``torch.export``.
        example: A global batch with the shapes and dtypes of inference: a mapping is passed as keyword
            arguments, a tuple or list as positional ones.
        mesh: Names of axes and their sizes, as in :func:`shardc.compile_step`.
        plan: What is sharded, as in :func:`shardc.compile_step`. With a pipeline, the forwards of its
            schedule run. Default: ``"data"``.
        options: Other options of ``compile_step``, by name, such as ``fuse``, ``autocast`` or ``verify``.

    Returns:
        A forward, with ``output = forward(batch)`` under torchrun and ``print(forward.plan)`` anywhere.

    Raises:
        BadArgument: An argument is of the wrong kind.
        ShardcError: Base class of every error that ``compile_step`` raises.

    Example:
        >>> forward = shardc.compile_forward(model, batch[:1], mesh={"tensor": 2}, plan="tensor")
        >>> forward.check().passed
        True
    """
    chosen = StepOptions.of({"mesh": mesh, "plan": plan, **options})
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module()
    check_arguments({"model": model})
    made = forward_of(model, example, chosen, chosen.parallelism.plan)
    if chosen.numerics.verify and not (outcome := made.check()).passed:
        raise NotEqual(table=outcome.render())
    return made


def forward_of(
    model: torch.nn.Module,
    batch: object,
    options: StepOptions,
    plan: PlanLike | Plan,
    evaluated: Evaluated | None = None,
    over: State | None = None,
    held: Held | None = None,
) -> CompiledForward:
    """Compile a forward from arguments that were checked.

    ``over``: the running step whose tensors the forward uses; by default the forward has its own. ``held``:
    what the ranks of that step hold, if it is a pipeline.
    """
    if options.parallelism.memory_budget is not None:
        # A forward keeps no activations for backward, so a budget for them means nothing.
        options = replace(options, parallelism=replace(options.parallelism, memory_budget=None))
    kernels, numerics = options.kernels, options.numerics
    target = step_target(kernels.target) if kernels.fuse or kernels.target else None
    if target is None:
        check_no_force(kernels.force_fusion, "there can be no kernels for this machine's GPU")
    mesh, world = mesh_of(options.parallelism), world_size()
    if world is not None and world != mesh.world_size:
        shown = " x ".join(f"{a.name} {a.size}" for a in mesh.space)
        raise MeshIsNotTheWorld(mesh=shown, size=mesh.world_size, world=world)
    autocast = None if numerics.autocast is None else getattr(torch, numerics.autocast)
    with collection_paused(), torch.enable_grad():
        capture, tree = capture_forward(
            model, batch, evaluated or Evaluated(), autocast=autocast, context=new_context()
        )
        level1 = capture.module.operation.get_asm(assume_verified=True)
        with collect_remarks() as remarks:
            given, pipeline = resolve_plan(options.parallelism, model, options.pipeline)
        given = plan if isinstance(plan, Plan) else given
        own = model_plan_of(model)
        request = Request(capture, mesh, options, target, given, pipeline, own, held=held)
        compiled = request.compiled()
        compiled.remarks.extend(remarks)
    tied, tree_of_batch = dict(capture.tied), describe_batch(capture.batch_tree)
    fields = ManifestFields(fingerprint(level1), tree_of_batch, seed=numerics.seed, tied=tied)
    on_host = kernels.target is not None and target is not None and target.runs_on_host
    return CompiledForward(compiled, fields, batch, tree, "cpu" if on_host else None, over)
