"""``capture_step``: from a module, a real optimizer and one batch to the level-1 program of the step."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Sequence

import torch
from torch_mlir import ir

from shardc.diagnostics.frontend import DataDependent, TraceFailed
from shardc.dialects.collection import collection_paused
from shardc.frontend.importing.cleanup import clean
from shardc.frontend.importing.graph_io import finish
from shardc.frontend.importing.mlir_import import import_step
from shardc.frontend.selected.fix_sizes import fix_sizes
from shardc.frontend.step.batch import LossFunction, flatten_batch
from shardc.frontend.step.constrained import Layouts
from shardc.frontend.step.model_state import ModelState, has_storage, model_state
from shardc.frontend.step.optimizer import StateSlot, TracedOptimizer
from shardc.frontend.step.outputs import Outputs
from shardc.frontend.step.overrides.huggingface import prepared
from shardc.frontend.step.spec import Capture
from shardc.frontend.step.trace import NOTHING, ClipParameters, StepTracer, Trace
from shardc.runtime.report import progress
from shardc.runtime.torch_private import uncompiled, use_lazy_graph_module


@progress.phase("trace")
def capture_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    example_batch: object,
    *,
    loss: LossFunction | None = None,
    clip_grad_norm: float | None = None,
    clip_parameters: ClipParameters = "model",
    autocast: torch.dtype | None = None,
    context: ir.Context | None = None,
    twice: bool = False,
    outputs: Outputs = NOTHING,
    noted: Collection[str] = (),
    layouts: Layouts | None = None,
) -> Capture:
    """Traces forward, loss, backward, clipping and ``optimizer.step()`` as one function; nothing is computed.

    ``model`` may be real, fake or on the meta device; model and optimizer are left as they were. How it and
    the loss are called is what :mod:`shardc.frontend.step.call` says of the batch. Without a loss function
    the loss is ``output.loss``, the first part of a tuple, or the output itself.
    ``clip_grad_norm`` is the largest global 2-norm of the gradients of all the model's parameters, or, by
    ``clip_parameters``, of the optimizer's. ``autocast`` runs forward and loss under
    ``torch.autocast`` with that dtype. ``twice`` traces two steps in a row, to see what a trace would freeze
    that is neither an attribute of a module nor a generator of random numbers: time, globals. ``outputs`` are
    results besides the loss, of role ``output``. ``noted`` names modules: ops of their calls get the
    attribute ``dist.module``. ``layouts``: of modules' outputs.

    Raises subclasses of ShardcError, from ``shardc.diagnostics.frontend``.
    """
    started = time.perf_counter()
    model = uncompiled(model)
    state = model_state(model)
    traced_optimizer = TracedOptimizer(optimizer, state.params)
    batch = flatten_batch(example_batch)
    tracer = StepTracer(
        model,
        state,
        traced_optimizer,
        batch,
        loss=loss,
        clip_grad_norm=clip_grad_norm,
        clip_parameters=clip_parameters,
        autocast=autocast,
        twice=twice,
        outputs=outputs,
        noted=noted,
        layouts=layouts,
    )
    # Without collections, and without code for a graph that still changes, a trace takes a fifth less time.
    with collection_paused(), use_lazy_graph_module(True):
        trace = with_symbols(model, tracer)
        clean(trace.graph)
        step = finish(trace)
        traced = time.perf_counter()
        module = import_step(step, context)
    read = {spec.name for spec in step.arguments if spec.role == "hyper"}
    return Capture(
        module=module,
        graph=step.module,
        arguments=step.arguments,
        results=step.results,
        batch_tree=batch[1],
        constants=step.constants,
        hyperparameters=[item for item in traced_optimizer.hyperparameters if item.name in read],
        baked=traced_optimizer.baked(read),
        tied=state.tied,
        gradients=step.gradients,
        written=trace.written,
        noted=tuple(noted),
        trace_s=traced - started,
        import_s=time.perf_counter() - traced,
        _values=values_of(state, traced_optimizer.slots),
        _fills={slot.name: slot.fill for slot in traced_optimizer.slots if slot.fill is not None},
    )


def with_symbols(model: torch.nn.Module, tracer: StepTracer) -> Trace:
    """The trace; if sizes or numbers in it depend on values, one with symbols there, of fixed sizes again."""
    try:
        return prepared(model, tracer.trace)
    except DataDependent as error:
        try:
            trace = prepared(model, functools.partial(tracer.trace, symbols=True))
        except TraceFailed:  # PyTorch itself has no symbolic sizes there
            raise error from None
    fix_sizes(trace.graph)
    return trace


def values_of(state: ModelState, slots: Sequence[StateSlot]) -> dict[tuple[str, str], torch.Tensor]:
    """What the model and the optimizer hold, by role and name, of those that have values."""
    values = {("param", name): param.detach() for name, param in state.params.items() if has_storage(param)}
    values |= {("buffer", name): buffer for name, buffer in state.buffers.items() if has_storage(buffer)}
    values |= {("opt_state", slot.name): slot.value for slot in slots if slot.value is not None}
    return values
