"""``shardc.compile_step``: a whole training step, compiled for a mesh."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn, SupportsIndex

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from shardc.artefact.folder import write_artefact
from shardc.artefact.manifest import ManifestFields, fields_of, is_program, manifest_of
from shardc.backends.eager.proof.compare import prove_step
from shardc.backends.eager.proof.comparison import Proof
from shardc.backends.torch.check_program import check_program
from shardc.backends.torch.description import describe_kernels
from shardc.compiler.memory import step_peak
from shardc.diagnostics.api import MeshIsNotTheWorld, NotEqual, SavedTooLate
from shardc.diagnostics.base import collect_remarks
from shardc.diagnostics.catalogue import check_silenced
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.diagnostics.planning import OffloadNotYet
from shardc.dialects.collection import collection_paused
from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.model_state import has_storage, model_state
from shardc.frontend.step.outputs import Outputs
from shardc.options.kernels import Kernels
from shardc.options.numerics import Numerics
from shardc.options.parallelism import Parallelism, PlanLike
from shardc.options.pipeline import Pipeline
from shardc.options.step import StepOptions
from shardc.passes.plan.plan import Plan
from shardc.report.memory_text import explain_pipeline, peak_text
from shardc.report.pipeline_report import PipelineReport
from shardc.report.plan_report import Report, make_report
from shardc.runtime.arguments import path_given, whole_number
from shardc.runtime.errors import StepNotCopied
from shardc.runtime.kernels.loaders import Kernels as Library
from shardc.runtime.outputs import Result
from shardc.runtime.program import Program
from shardc.runtime.report import progress
from shardc.runtime.report.logs import start as start_logs
from shardc.runtime.state import Source
from shardc.runtime.step import COPY_HINT, TrainStep
from shardc.runtime.torch_private import uncompiled
from shardc.step.arguments import check_arguments, one_device, world_size
from shardc.step.compile_forward import take
from shardc.step.evaluate import Forwards
from shardc.step.foreign.resolve import resolve_plan
from shardc.step.fuse_step import check_no_force, step_target
from shardc.step.guards import Places
from shardc.step.log_step import log_step
from shardc.step.micro_batches import cut_micro_batches
from shardc.step.model_watch import ModelWatch
from shardc.step.modules.constraints import layouts_of
from shardc.step.modules.recomputed import recomputed
from shardc.step.once import Request
from shardc.step.other_shapes import OtherShapes, bucketed
from shardc.step.roomy import Roomy
from shardc.step.shard import Compiled
from shardc.step.sharding.mesh import mesh_of
from shardc.step.sharding.plan import model_plan_of
from shardc.step.share_state import follow, share_state, shared_with, slots_of
from shardc.step.values import batch_leaves, example_inputs
from shardc.text_files import write_text

RUNNING = ("hyper", "seed", "state", "steps_done")
"""Attributes of a running step besides those of its class."""


@dataclass(eq=False, repr=False)
class CompiledStep:
    """Training step that :func:`shardc.compile_step` returns.

    Call it with a batch under torchrun. Printing its plan, checking it and saving it need no torchrun.

    The first call joins the ranks' processes. From then on the step also has all attributes of
    :class:`~shardc.runtime.step.TrainStep`: ``parameters()``, ``state_dict()``, ``save_checkpoint()``,
    ``hyper`` and others.

    Example:
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss)
        >>> first, second = step(batch), step(batch)
        >>> bool(second < first)
        True
    """

    compiled: Compiled
    _fields: ManifestFields
    _batch: object
    _optimizer: torch.optim.Optimizer
    _source: Source
    _model: torch.nn.Module
    _watch: ModelWatch
    _forwards: Forwards
    _others: OtherShapes[CompiledStep]
    _modes: list[CompiledStep]
    _roomy: Roomy[CompiledStep]
    _device: str | None = None
    _running: TrainStep | None = field(default=None, init=False)
    _places: Places | None = field(default=None, init=False)
    around: Sequence[str] = field(default=(), init=False)
    """Lines on the meshes, micro-batches and recomputation that were tried, if a search picked the mesh."""

    @property
    def plan(self) -> Report:
        """Report of each tensor's sharding with its reason, and of a device's memory and traffic."""
        c = self.compiled
        kernels, remarks = describe_kernels(c.program), list(c.remarks)
        more = (kernels, self.peak, self.pipeline, c.fusion_effect, c.work, c.time)
        made = make_report(c.rank_module, c.plan.text, remarks, c.seconds, *more)
        return replace(made, around=self.around)

    @cached_property
    def peak(self) -> str:
        """Text about a rank's peak memory and where in the step it occurs; empty for a pipeline."""
        return "" if self.pipeline else peak_text(self.compiled.program, self._host_kernels())

    @cached_property
    def pipeline(self) -> PipelineReport | None:
        """Report of what each rank of a pipeline holds and sends; None if the plan has no pipeline."""
        return explain_pipeline(self.compiled.program, self._host_kernels())

    def save_plan(self, path: Path | str) -> None:
        """Write the plan as JSON, for ``plan=`` of another compile.

        Args:
            path: File to write, such as ``"plan.json"``; an older one is replaced.

        Raises:
            UnwritableOutput: The file cannot be written.
        """
        write_text(path_given(path, "path"), json.dumps(self.compiled.plan_json, indent=1) + "\n")

    @progress.work("proof")
    def check(self, steps: int = 2) -> Proof:
        """Compare this program on simulated ranks with the single-device program.

        Losses, gradients and state are compared in f64, to 1e-9, and in the program's own precision with its
        compiled kernels. Training starts from a copy of the model's and the optimizer's state. Tensors whose
        elements are all equal, such as weights of norms and fresh moments, are perturbed in the copy, so that
        a swapped shard shows. The step, the model and the optimizer do not change.

        Programs compiled later for other shapes, other modes, :meth:`evaluate` and :meth:`forward` are
        checked too; their proofs are in ``others``. If a pipeline's schedule computes with older weights,
        those are compared as well.

        Args:
            steps: Number of training steps to compare, at least 1.

        Returns:
            The proof, with ``passed`` and tables of the largest errors.

        Raises:
            NoValues: The model is on the meta device.
            RankProgramBroken: The program of a pipeline's ranks contradicts its schedule.
        """
        whole_number(steps, "steps")
        shapes = {f"batch {shape}": step for shape, step in self._others.made.items()}
        modes = {f"another mode, number {n + 1}": step for n, step in enumerate(self._modes)}
        made = {**shapes, **modes, **self._roomy.made, **self._forwards.made}
        return replace(self._proof(steps), others=tuple((n, of.check(steps)) for n, of in made.items()))

    def _proof(self, steps: int) -> Proof:
        """Return the proof of the program for the example batch's shapes."""
        c = self.compiled
        read = model_state(self._model)
        held = {**read.params, **read.buffers, **slots_of(self._model, self._optimizer)}
        is_cut = any(isinstance(tensor, DTensor) for tensor in read.params.values())
        inputs = example_inputs(c.capture, self._optimizer, self._batch, held=held if is_cut else None)
        if c.pipeline_module is not None:
            check_program(c.program_text, c.program)
        uncut, library = None if c.pipeline_module is None else c.rank_module, self._host_kernels()
        return prove_step(c.global_module, c.program, inputs, steps=steps, library=library, uncut=uncut)

    def save(self, folder: Path | str) -> None:
        """Write an artefact, a folder that runs with torch alone.

        If the model is on the meta device, the artefact has no initial values. They then come from a
        checkpoint, or from ``state=`` of the runtime's ``TrainStep.load``.

        Args:
            folder: Folder to write; an older artefact there is replaced.

        Raises:
            NotOurFolder: The folder has other content than an older artefact.
            UnwritableOutput: The folder cannot be written.
            SavedTooLate: The first step has run on several devices, so no process has whole tensors.
        """
        c, values = self.compiled, self._initial_values()
        is_late = self._running is not None and not self._is_whole
        if is_late or any(isinstance(value, DTensor) for value in values.values()):
            raise SavedTooLate(count=c.mesh.world_size)
        write_artefact(
            path_given(folder, "folder"),
            c.levels,
            c.program_text,
            manifest_of(c.description, self._planned(), self._described),
            library=c.library,
            plan=c.plan_json,
            constants=c.capture.constants,
            state=values or None,
            batches=[batch_leaves(c.capture, self._batch)],
        )

    def __call__(self, batch: object) -> Result:
        """Run one training step: forward, backward and update.

        A batch of other shapes than the example's runs in another program over the same state. That program
        is compiled when such a batch first comes.

        Args:
            batch: A global batch, the same on all ranks.

        Returns:
            The loss, 0-d, the same on every rank. With ``outputs=``, a :class:`shardc.StepResult`, as in
            ``loss, outputs = step(batch)``.

        Raises:
            BatchMismatch: The batch has other leaves or dtypes than the example.
            TooManyShapes, ShapeNotCompiled, BadBucket: No program can be compiled for its shapes.
            ModelChanged: The model or the optimizer differs from what was compiled in a mode, a hook, an
                attribute, ``requires_grad`` or a parameter object. Changed values are no error.
            WorldMismatch: The number of processes is not the number of the mesh's devices.
        """
        return self.running(batch)

    def evaluate(self, batch: object) -> Result:
        """Compute the loss and ``outputs=`` on a global batch, without an update.

        Norms of gradients among ``outputs=`` are left out. The model runs in eval mode on the step's tensors
        and writes no buffer. The first batch of each form (names, shapes, dtypes) compiles a program, with a
        warning. With a pipeline, the forwards of its schedule run.

        Args:
            batch: A global batch, the same on all ranks.

        Returns:
            The loss, 0-d, or a :class:`shardc.StepResult`.
        """
        return self._forwards.evaluate(self.compiled, self.running, batch)

    def forward(self, batch: object) -> object:
        """Compute the model's output on a global batch, in eval mode like :meth:`evaluate`.

        Args:
            batch: A global batch, the same on all ranks.

        Returns:
            The output in the model's own containers; its tensors are DTensors on several devices.
        """
        return self._forwards.forward(self.compiled, self.running, batch)

    def take_from(self, source: object) -> None:
        """Copy parameters and buffers from another program or a model, through memory.

        All ranks must call it together.

        Args:
            source: A compiled forward, another step, or a model of the same architecture.

        Raises:
            BadArgument: ``source`` is something else.
            StateMismatch: ``source`` lacks a tensor, or has it in another shape.
        """
        take(self.running, source)

    def for_batch(self, batch: object) -> CompiledStep:
        """Return the step for batches of these shapes, and compile it if there is none yet.

        Use it to print, check or save that program. For training call this step, which counts the steps.

        Args:
            batch: A batch of the shapes in question; its values do not matter.

        Raises:
            TooManyShapes, ShapeNotCompiled, BadBucket, BatchUnsupported: No such program can be compiled.
        """
        return self._others.step_for(batch) or self

    @property
    def running(self) -> TrainStep:
        """Running step, joined to the other ranks. It trains the model's and the optimizer's tensors."""
        if self._running is None:
            c, model, optimizer = self.compiled, self._model, self._optimizer
            follow(model, optimizer)
            running = TrainStep(
                Program.of(c.program_text, self._kernels()),
                manifest_of(c.description, self._planned(), self._described),
                c.capture.constants,
                state=self._initial_source(),
                device=self._device,
                shared=shared_with(model, optimizer),
            )
            self._watch.check_start()
            self._places = share_state(running.state, model, optimizer)
            self._watch.renew()
            running.bind(optimizer)
            running.check_before_steps(self._watch)
            running.have_others(self._others)
            if self._roomy:
                running.run_again_by(lambda: self._roomy.step().running)
            self._running = running
        elif self._places is not None:
            self._places.check()
        return self._running

    def _initial_source(self) -> Source:
        """Return the source of initial values: ``state=``, or the model (for missing buffers, too)."""
        source = self._source
        if not callable(source):
            return self._initial_values() if source is None else source
        own = {n: v for (role, n), v in self.compiled.capture.initial_values().items() if role == "buffer"}

        def block(
            name: str, shape: tuple[int, ...], dtype: torch.dtype, slices: tuple[slice, ...]
        ) -> Tensor | None:
            found = source(name, shape, dtype, slices)
            held = own.get(name) if found is None else None
            return found if held is None else held[slices]

        return block

    @property
    def _is_whole(self) -> bool:
        """True if the step runs on one device, and so has whole tensors."""
        return self.compiled.mesh.world_size == 1

    def _initial_values(self) -> dict[str, Tensor]:
        """Return the current values of the model and the optimizer by name, without those on meta."""
        if self._running is not None and self._is_whole:
            return {name: tensor.detach() for name, tensor in self._running.state.local.items()}
        found = self.compiled.capture.initial_values()
        read = model_state(self._model)
        now = {**read.params, **read.buffers, **slots_of(self._model, self._optimizer)}
        there = {n: t.detach() for n, t in now.items() if isinstance(t, DTensor) or has_storage(t)}
        return {n: v for (_, n), v in found.items() if v is not None} | {
            n: there[n] for _, n in found if n in there
        }

    def _planned(self) -> ManifestFields:
        """Return the manifest's fields, with the planned peak memory if the step is for an accelerator."""
        c = self.compiled
        on_host = c.target is None or c.target.runs_on_host
        if (on_host and not torch.cuda.is_available()) or c.pipeline_module is not None:
            return self._fields
        try:
            return replace(self._fields, peak_bytes=step_peak(c.program).size_bytes)
        except PeakUnknown:
            return self._fields

    def _kernels(self) -> Library | None:
        """Load the compiled kernels, if there are any."""
        c = self.compiled
        return None if c.library is None or c.target is None else c.target.load(c.library)

    def _host_kernels(self) -> Library | None:
        """Load the compiled kernels if they run on host tensors, such as the oracle's."""
        target = self.compiled.target
        return None if target is None or not target.runs_on_host else self._kernels()

    @property
    def _described(self) -> str:
        return "" if self.compiled.target is None else self.compiled.target.described()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise StepNotCopied("a step cannot be copied or pickled", hint=COPY_HINT)

    def __setattr__(self, name: str, value: object) -> None:
        # Attributes of a running step are set on that step: nothing would read them here.
        super().__setattr__(name, value) if name not in RUNNING else setattr(self.running, name, value)

    def __getattr__(self, name: str) -> Any:
        # Only attributes of a running step may join the processes: hasattr(step, "anything") must not.
        if name.startswith("_") or not (hasattr(TrainStep, name) or name in RUNNING):
            raise AttributeError(f"a compiled step has no attribute {name!r}")
        return getattr(self.running, name)


def compile_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    example_batch: object,
    *,
    mesh: Mapping[str, int] | None = None,
    plan: PlanLike | None = None,
    loss: Callable[..., Tensor] | None = None,
    state: Source = None,
    parallelism: Parallelism | Mapping[str, object] | None = None,
    pipeline: Pipeline | Mapping[str, object] | None = None,
    kernels: Kernels | Mapping[str, object] | None = None,
    numerics: Numerics | Mapping[str, object] | None = None,
    **options: object,
) -> CompiledStep:
    """Compile a whole training step for a mesh of devices.

    The forward, loss, backward, clipping and optimizer update of a single-device program become one program
    for each rank. Compiling needs neither GPUs nor other processes; the first call of the result joins them.

    Options come in four groups; ``docs/reference/options.md`` lists them with their defaults. Pass a group as
    its dataclass, as a mapping, or by the names of its fields. A field given by name overrides the group's.

    Args:
        model: Any ``nn.Module``, with real parameters or on the meta device. Compiling does not change it.
        optimizer: Optimizer of the model's parameters, from ``torch.optim`` or your own.
        example_batch: A global batch, the rows of all devices together, with the shapes and dtypes of
            training. A mapping or dataclass is passed as keyword arguments, a tuple or list as positional
            ones. In a tuple ``(x, y)``, ``y`` is the loss's target if the forward cannot take it or the loss
            is one of PyTorch's.
        mesh: Names of axes and their sizes, the most major axis first. Default: one device. With
            ``plan="auto"`` and no mesh, a search picks the mesh, the micro-batches and the recomputation, for
            ``cluster`` or for the running processes.
        plan: What is sharded over which axes: a preset such as ``"zero3"``, a product such as
            ``"data*tensor"``, ``"auto"``, a saved plan's path, or a mapping of name patterns to shardings.
            Default: ``"data"``.
        loss: Called as ``loss(output, batch)``, or ``loss(output, y)`` for a batch ``(x, y)``, unless its
            second parameter is called ``batch``; returns a scalar. Default: the output's ``.loss``, the
            output itself if it is a scalar, or the first part of a tuple.
        state: Initial values that replace the model's: a state dict, or a function
            ``(name, shape, dtype, slices) -> tensor`` that is called for each block. Needed for a model on
            the meta device; :func:`shardc.read_weights` returns such a function. Default: the model's values.
        parallelism: The group :class:`shardc.Parallelism`; it has ``mesh`` and ``plan`` as fields, too.
        pipeline: The group :class:`shardc.Pipeline`: stages and their schedule.
        kernels: The group :class:`shardc.Kernels`: what is fused, and for which target.
        numerics: The group :class:`shardc.Numerics`: clipping, autocast, seed, proof.
        options: Fields of the groups by name, such as ``micro_batches=4`` or ``verify=True``.

    Returns:
        A step. Under torchrun it is called, ``loss = step(batch)``; ``print(step.plan)`` and ``step.check()``
        work anywhere.

    Raises:
        BadArgument: An argument is of the wrong kind.
        UnknownOption, OldSpelling: An option has another name.
        UnknownPreset, UnknownAxis: No preset has that name, or the plan names an axis that the mesh lacks.
        DataDependent, TraceFailed: The step cannot be captured as one graph.
        NotEqual: ``verify=True`` found a difference from the single device.
        ShardcError: Base class of all errors; ``docs/reference/messages.md`` lists them.

    Example:
        >>> step = shardc.compile_step(
        ...     model, optimizer, batch, loss=loss, mesh={"data": 2, "tensor": 2}, plan="zero3*tensor"
        ... )
        >>> step.check().passed
        True

        The same pipeline, by names of fields and by groups:

        >>> given = {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 4, "schedule": "zb-h1"}
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss, **given)
        >>> parallelism = shardc.Parallelism({"pipe": 2}, "pipeline", micro_batches=4)
        >>> pipeline = {"schedule": "zb-h1"}
        >>> step = shardc.compile_step(
        ...     model, optimizer, batch, loss=loss, parallelism=parallelism, pipeline=pipeline
        ... )
    """
    check_arguments({"model": model, "optimizer": optimizer, "loss": loss, "state": state})
    groups = {"parallelism": parallelism, "pipeline": pipeline, "kernels": kernels, "numerics": numerics}
    mesh = one_device(parallelism) if mesh is None else mesh
    chosen = StepOptions.of({"mesh": mesh, "plan": plan, **groups, **options})
    example_batch = bucketed(example_batch, chosen.shapes.bucket)
    return compile_with(model, optimizer, example_batch, chosen, loss, state)


@progress.work("compile_step")
def compile_with(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    example_batch: object,
    options: StepOptions,
    loss: Callable[..., Tensor] | None = None,
    state: Source = None,
    plan: Plan | None = None,
) -> CompiledStep:
    """Compile a step from arguments and options that were checked.

    ``plan``: the plan of a step for another shape of batch, to be used here as well.
    """
    start_logs()
    check_silenced()
    parallelism, kernels, numerics = options.parallelism, options.kernels, options.numerics
    if parallelism.offload is not None:
        raise OffloadNotYet(what=parallelism.offload)
    target = step_target(kernels.target) if kernels.fuse or kernels.target else None
    if target is None:
        check_no_force(kernels.force_fusion, "there can be no kernels for this machine's GPU")
    mesh, world = mesh_of(parallelism), world_size()
    if world is not None and world != mesh.world_size:
        shown = " x ".join(f"{a.name} {a.size}" for a in mesh.space)
        raise MeshIsNotTheWorld(mesh=shown, size=mesh.world_size, world=world)
    follow(model, optimizer)
    micro_batches = None
    if parallelism.per_micro_batch:
        micro_batches = cut_micro_batches(example_batch, parallelism.micro_batches)
    trace = partial(
        capture_step,
        model,
        optimizer,
        example_batch if micro_batches is None else micro_batches.first,
        loss=loss,
        clip_grad_norm=numerics.clip_grad_norm,
        clip_parameters=numerics.clip_parameters,
        autocast=None if numerics.autocast is None else getattr(torch, numerics.autocast),
        outputs=Outputs(options.results.outputs or {}),
        noted=recomputed(uncompiled(model), parallelism),
        layouts=layouts_of(uncompiled(model), parallelism.constraints),
    )
    with collection_paused():
        capture = trace(context=new_context(), twice=numerics.verify)
        level1 = capture.module.operation.get_asm(assume_verified=True)
        fields = fields_of(capture, optimizer, level1, numerics.seed)
        with collect_remarks() as remarks:
            given, pipeline = resolve_plan(parallelism, model, options.pipeline)
        own = model_plan_of(model)
        request = Request(capture, mesh, options, target, plan or given, pipeline, own, micro_batches)
        compiled = request.compiled()
        compiled.remarks.extend(remarks)
    log_step(compiled)
    on_host = kernels.target is not None and target is not None and target.runs_on_host
    watch = ModelWatch(
        model,
        loss,
        optimizer,
        capture.written,
        is_same=lambda: is_program(trace(context=new_context()), capture, fields),
        of_mode=lambda: of_mode().running,
    )
    modes: list[CompiledStep] = []

    def of_mode() -> CompiledStep:
        modes.append(compile_with(model, optimizer, example_batch, options, loss, plan=plan))
        return modes[-1]

    def compile_for(batch: object) -> CompiledStep:
        with torch.enable_grad():
            return compile_with(model, optimizer, batch, options, loss, plan=compiled.plan)

    def compile_roomy(roomy: StepOptions) -> CompiledStep:
        with torch.enable_grad():
            return compile_with(model, optimizer, example_batch, roomy, loss, plan=compiled.plan)

    device = "cpu" if on_host else None
    roomy = Roomy(options, compile_roomy)
    forwards = Forwards(uncompiled(model), loss, roomy.options)
    others = OtherShapes(options.shapes, example_batch, compile_for, watch.check_start)
    step = CompiledStep(
        compiled,
        fields,
        example_batch,
        optimizer,
        state,
        uncompiled(model),
        watch,
        forwards,
        others,
        modes,
        roomy,
        device,
    )
    if numerics.verify and not (outcome := step.check()).passed:
        raise NotEqual(table=outcome.render())
    return step
