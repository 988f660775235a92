"""``shardc.compile_step``: a whole training step, compiled for a mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shardc.backends.eager.compare import prove_step
from shardc.backends.eager.comparison import Proof
from shardc.backends.torch.emit import emit_program
from shardc.diagnostics.api import MeshIsNotTheWorld, NotEqual
from shardc.diagnostics.memory import PeakUnknown
from shardc.dialects.collection import collection_paused
from shardc.dialects.context import new_context
from shardc.dialects.pipe.schedule import Schedule
from shardc.driver.arguments import check_arguments, world_size
from shardc.driver.artefact import write_artefact
from shardc.driver.compiler import Compiled, PlanLike, compile_capture, make_mesh
from shardc.driver.gpu_kernels import CPU, fuse_step_for, is_for_cpu, step_gpu
from shardc.driver.manifest import ManifestFields, build_manifest, describe_kernels, fields_of
from shardc.driver.memory import explain_pipeline, said_peak, step_peak
from shardc.driver.model_plan import model_plan_of
from shardc.driver.pipeline_options import PipelineOptions
from shardc.driver.pipeline_report import PipelineReport
from shardc.driver.report import Report, make_report
from shardc.driver.step_kernels import check_no_force, fuse_step
from shardc.driver.values import batch_leaves, example_inputs
from shardc.frontend.capture import capture_step
from shardc.passes.fuse.wishes import Wishes
from shardc.runtime.kernels import Library
from shardc.runtime.program import Program
from shardc.runtime.state import Source
from shardc.runtime.step import TrainStep
from shardc.runtime.triton_kernels import Modules

RUNNING = ("hyper", "seed", "state", "steps_done")
"""What a running step has besides the attributes of its class."""


class CompiledStep:
    """A compiled step: ``loss = step(batch)`` under torchrun; ``print(step.plan)`` anywhere.

    Processes are joined at the first call. From then on everything that :class:`~shardc.runtime.step.TrainStep` has
    (``parameters()``, ``state_dict()``, ``save_checkpoint()``, ``hyper``, ...) is here too.
    """

    def __init__(
        self,
        compiled: Compiled,
        fields: ManifestFields,
        batch: Any,
        optimizer: torch.optim.Optimizer,
        state: Source,
        device: str | None = None,
    ) -> None:
        self.compiled = compiled
        self._fields = fields
        self._batch = batch
        self._optimizer = optimizer
        self._source, self._device = state, device
        self._running: TrainStep | None = None

    @property
    def plan(self) -> Report:
        """What was cut how and why, what it needs and what it sends."""
        c = self.compiled
        kernels, remarks = describe_kernels(c.program), list(c.remarks)
        return make_report(
            c.rank_module, c.plan.text, remarks, c.seconds, kernels, self.peak, self.pipeline, c.fusion_effect
        )

    @cached_property
    def peak(self) -> str:
        """The most memory that a step's tensors take at once on a rank, and where; nothing of a pipeline."""
        return (
            said_peak(self.compiled.program, self._library()) if self.compiled.pipeline_module is None else ""
        )

    @cached_property
    def pipeline(self) -> PipelineReport | None:
        """What each rank of a pipeline holds and sends; None without one."""
        return (
            None
            if self.compiled.pipeline_module is None
            else explain_pipeline(self.compiled.program, self._library())
        )

    def save_plan(self, path: Path | str) -> None:
        """Write the plan as JSON, for ``plan=`` of another compile."""
        from shardc.driver.plans import save_plan

        save_plan(Path(path), self.compiled)

    def check(self, steps: int = 1) -> Proof:
        """Run this program on simulated ranks against the single-device program: losses, gradients and state, in f64,
        and in its own precision with its compiled kernels.

        Of a pipeline whose schedule changes the mathematics: the step before it was cut against the single-device
        program, and the pipeline against that step run on the old weights that the schedule gives each micro-batch.
        """
        c = self.compiled
        inputs = example_inputs(c.capture, self._optimizer, self._batch)
        uncut = None if c.pipeline_module is None else c.rank_module
        return prove_step(
            c.global_module, c.program, inputs, steps=steps, library=self._library(), uncut=uncut
        )

    def save(self, folder: Path | str) -> None:
        """Write an artefact, which runs with torch alone.

        A model on the meta device leaves it without initial values: they come from a checkpoint, or from ``state=`` of
        the runtime's ``TrainStep.load``. Raises NotOurFolder if the folder holds anything but an older artefact, and
        UnwritableOutput.
        """
        c = self.compiled
        values = {name: value for (_, name), value in c.capture.initial_values().items()}
        write_artefact(
            Path(folder),
            c.levels,
            c.program,
            self._planned(),
            library=c.library,
            target=c.target,
            plan=c.plan_json,
            constants=c.capture.constants,
            state=values if any(value is not None for value in values.values()) else None,
            batches=[batch_leaves(c.capture, self._batch)],
        )

    def __call__(self, batch: Any) -> Tensor:
        """One training step on a global batch; the loss, 0-d, the same on every rank."""
        return self.running(batch)

    @property
    def running(self) -> TrainStep:
        """The step joined to the other ranks' processes."""
        if self._running is None:
            c = self.compiled
            state = self._source
            if state is None:
                state = {n: v for (_, n), v in c.capture.initial_values().items() if v is not None}
            self._running = TrainStep(
                Program.of(
                    emit_program(c.program), Modules(c.library) if c.target and c.library else self._library()
                ),
                build_manifest(c.program, self._planned(), {}, c.target),
                c.capture.constants,
                state=state,
                device=self._device,
            )
            self._running.bind(self._optimizer)
        return self._running

    def _planned(self) -> ManifestFields:
        """What a manifest says, with the planned memory of a program for a GPU."""
        if (
            not (self.compiled.target or torch.cuda.is_available())
            or self.compiled.pipeline_module is not None
        ):
            return self._fields
        try:
            return replace(self._fields, peak_bytes=step_peak(self.compiled.program).size_bytes)
        except PeakUnknown:
            return self._fields

    def _library(self) -> Library | None:
        return (
            None if self.compiled.library is None or self.compiled.target else Library(self.compiled.library)
        )

    def __getattr__(self, name: str) -> Any:
        # Only what a running step has joins the processes: hasattr(step, "anything") must not.
        if name.startswith("_") or not (hasattr(TrainStep, name) or name in RUNNING):
            raise AttributeError(f"a compiled step has no attribute {name!r}")
        return getattr(self.running, name)


def compile_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    example_batch: Any,
    *,
    mesh: Mapping[str, int],
    plan: PlanLike = "data",
    loss: Callable[[Any, Any], Tensor] | None = None,
    clip_grad_norm: float | None = None,
    autocast: torch.dtype | None = None,
    micro_batches: int = 1,
    schedule: str | Path | Schedule | None = None,
    stages: int | Sequence[str] | None = None,
    stale_weights: bool = False,
    recompute: str | Sequence[str] | None = None,
    cap_bytes: float | None = None,
    gather: str | None = None,
    seed: int = 0,
    state: Source = None,
    fuse: bool = True,
    numerics: str = "fused",
    target: str | None = None,
    matmuls: str = "auto",
    forbid_fusion: Sequence[str] = (),
    force_fusion: Sequence[str] = (),
    verify: bool = False,
) -> CompiledStep:
    """Compile forward, loss, backward, clipping and the optimizer's update of a single-device program for a mesh.

    ``model`` is any ``nn.Module`` (real, or on the meta device), ``optimizer`` one of ``torch.optim`` on its
    parameters,
    ``example_batch`` a global batch: a mapping is passed as keyword arguments, a tuple or list as positional ones.
    ``mesh`` gives axes and sizes, the most major first. ``plan`` is a preset or a product of them (``data``, ``zero1``,
    ``zero2``, ``zero3``, ``tensor``, ``sequence``; ``"zero3*tensor"``), a mapping from name patterns to shardings, or
    the path of a saved plan. ``loss(output, batch)`` is needed unless the output has ``.loss`` or is a scalar.
    ``micro_batches`` cuts each rank's batch into parts that run one after the other, gradients accumulated.
    ``plan="pipeline"`` (``"pipeline*tensor"``, ...) cuts the program into stages along the axis ``pipe``: ``schedule``
    is a name (``shardc.passes.pipeline.schedules.registry``; ``"1f1b"`` if not given), a CSV file or a schedule;
    ``stages`` how many there are, or the names of the modules at which all but the first start; ``recompute`` what
    their backward computes again and does not keep: ``"none"``, ``"full"`` or ``"selective"`` (all but matmuls,
    convolutions, attention and communication), or a list with one for each stage; ``cap_bytes`` what a device may hold
    of parameters, gradients, optimizer state and activations in flight; ``gather`` what parameters that the rest of the
    plan cuts are gathered for, each ``"micro-batch"`` or the ``"step"``. ``stale_weights`` must be set for a schedule
    that changes the mathematics (``"pipedream"``, ``"pipedream-2bw"``): stages then update their weights several times
    in a step, from gradients of older weights.
    ``state`` gives initial values (a state dict, or a function ``(name, shape, dtype, slices) -> tensor`` called for
    each block) where the model's own tensors are not to be used, or have no storage.
    ``fuse``: groups of ops become kernels; ``numerics`` says where their chains of 16-bit floats are rounded:
    ``"fused"`` at a kernel's results, ``"eager"`` after each op.
    ``target`` is what kernels are for, and where the step runs: ``"cpu"``, or a GPU (``"sm_90"``), which need not be
    here; if not given, the GPU of this machine, and its CPU where torch sees none.
    ``matmuls``: ``"auto"`` decides for each piece of the program whether its matmuls and attention are calls of a
    library or parts of kernels, by measurement on CPUs and by a model of ``target``; ``"extern"`` has calls,
    ``"generated"`` kernels.
    ``forbid_fusion`` and ``force_fusion`` are edges such as ``"aten.add.Tensor+gelu@model.py:12"``: pairs of ops, as
    ``shardc explain --fusion`` prints them, that must not, and that must share a kernel. The plan says what they
    change.
    ``verify`` proves the program equal to the single-device one on the example batch before returning, in f64 to 1e-9
    and in its own precision within the bounds of ``shardc.backends.eager.tolerance``.

    Raises subclasses of ShardcError, such as FusionRefused for an edge that cannot be had; NotEqual if ``verify`` finds
    a difference.
    """
    check_arguments(locals())
    gpu = step_gpu(target) if fuse or target else None
    Wishes.of(forbid_fusion, force_fusion)
    if not fuse:
        check_no_force(force_fusion, "fuse is False")
    elif gpu is None and not is_for_cpu(target):
        check_no_force(force_fusion, "there can be no kernels for this machine's GPU")
    world = world_size()
    device_mesh = make_mesh(mesh, micro_batches)
    if world is not None and world != device_mesh.world_size:
        shown = " x ".join(f"{a.name} {a.size}" for a in device_mesh.space)
        raise MeshIsNotTheWorld(mesh=shown, size=device_mesh.world_size, world=world)
    with collection_paused():
        capture = capture_step(
            model,
            optimizer,
            example_batch,
            loss=loss,
            clip_grad_norm=clip_grad_norm,
            autocast=autocast,
            context=new_context(),
        )
        fields = fields_of(capture, optimizer, capture.module.operation.get_asm(assume_verified=True), seed)
        said = {
            "schedule": schedule, "stages": stages, "recompute": recompute, "cap_bytes": cap_bytes, "gather": gather,
        }  # fmt: skip
        given = {name: value for name, value in said.items() if value is not None}
        options = PipelineOptions(**given, stale_weights=stale_weights) if given else None
        compiled = compile_capture(
            capture, device_mesh, plan, model_plan=model_plan_of(model), pipeline=options
        )
        if fuse and gpu is not None:
            fuse_step_for(compiled, gpu, numerics, forbid_fusion, force_fusion, matmuls)
        elif fuse and is_for_cpu(target):
            fuse_step(compiled, numerics, forbid_fusion, force_fusion, matmuls)
    step = CompiledStep(compiled, fields, example_batch, optimizer, state, CPU if target == CPU else None)
    if verify:
        outcome = step.check()
        if not outcome.passed:
            raise NotEqual(table=outcome.render())
    return step
