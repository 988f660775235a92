"""``capture_step``: traces a module, an optimizer and one batch to the level-1 program of a step."""

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
    """Trace forward, loss, backward, clipping and ``optimizer.step()`` as one function, without computing.

    ``model`` may be real, fake or on the meta device. Model and optimizer stay unchanged.

    Args:
        model: The module to train.
        optimizer: An optimizer of its parameters.
        example_batch: One batch; :mod:`shardc.frontend.step.call` decides how model and loss take it.
        loss: Function of output and batch. Default: ``output.loss``, the first part of a tuple, or the output
            itself.
        clip_grad_norm: Maximum global 2-norm of the gradients. Default: no clipping.
        clip_parameters: Whose gradients the norm covers: all of the model's parameters, or the optimizer's.
        autocast: Dtype of ``torch.autocast`` in forward and loss. Default: no autocast.
        context: MLIR context of the module. Default: a new one.
        twice: Trace two steps in a row, to find state that a trace would freeze besides attributes of modules
            and random generators: time, globals.
        outputs: Results besides the loss, with role ``output``.
        noted: Names of modules whose calls are recorded: their ops get the attribute ``dist.module``.
        layouts: Layouts of modules' outputs.

    Returns:
        The captured step.

    Raises:
        ShardcError: Subclasses of ``shardc.diagnostics.frontend``.
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
    # Without garbage collection, and without code for an unfinished graph, a trace takes a fifth less time.
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
    """Trace with fixed sizes, or, if sizes or numbers depend on values, with symbols that are then fixed."""
    try:
        return prepared(model, tracer.trace)
    except DataDependent as error:
        try:
            trace = prepared(model, functools.partial(tracer.trace, symbols=True))
        except TraceFailed:  # PyTorch itself does not support symbolic sizes there
            raise error from None
    fix_sizes(trace.graph)
    return trace


def values_of(state: ModelState, slots: Sequence[StateSlot]) -> dict[tuple[str, str], torch.Tensor]:
    """Return the values of model and optimizer by role and name, for those that have values."""
    values = {("param", name): param.detach() for name, param in state.params.items() if has_storage(param)}
    values |= {("buffer", name): buffer for name, buffer in state.buffers.items() if has_storage(buffer)}
    values |= {("opt_state", slot.name): slot.value for slot in slots if slot.value is not None}
    return values
