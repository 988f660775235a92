"""``capture_forward``: traces a model's forward in eval mode as a level-1 program."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch_mlir import ir

from shardc.dialects.collection import collection_paused
from shardc.frontend.importing.cleanup import clean
from shardc.frontend.importing.graph_io import finish
from shardc.frontend.importing.mlir_import import import_step
from shardc.frontend.importing.recorder import FORWARD
from shardc.frontend.step.batch import LossFunction, find_loss, flatten_batch, unflatten_batch
from shardc.frontend.step.capture import values_of, with_symbols
from shardc.frontend.step.model_state import ModelState, model_state, unchanged
from shardc.frontend.step.optimizer import StateSlot, TracedOptimizer
from shardc.frontend.step.outputs import Outputs
from shardc.frontend.step.overrides.interception import Interception
from shardc.frontend.step.spec import BatchTree, Capture, Hyperparameter
from shardc.frontend.step.trace import NOTHING, Borrowed, Result, StepTracer, Tensors, Trace, take
from shardc.runtime.torch_private import pytree, uncompiled, use_lazy_graph_module


@dataclass(frozen=True)
class OutputTree:
    """A model's output: its containers, non-tensor values by place, and the names of its tensors."""

    spec: pytree.TreeSpec
    constants: Mapping[int, object]
    names: tuple[str, ...]

    def filled(self, tensors: Mapping[str, torch.Tensor]) -> object:
        """Return the output with these tensors."""
        names = iter(self.names)
        count = self.spec.num_leaves
        leaves = [self.constants[i] if i in self.constants else tensors[next(names)] for i in range(count)]
        return pytree.tree_unflatten(leaves, self.spec)


@dataclass(frozen=True)
class Evaluated:
    """Results of a forward program: ``loss`` and ``outputs``, or, if ``whole``, the model's output."""

    loss: LossFunction | None = None
    outputs: Outputs = NOTHING
    whole: bool = True


class NoOptimizer:
    """Empty optimizer of a program without one."""

    names: Sequence[str] = ()
    slots: Sequence[StateSlot] = ()
    hyperparameters: Sequence[Hyperparameter] = ()

    def hyper_tensors(self) -> list[torch.Tensor]:
        return []


class ForwardTracer(StepTracer):
    """Tracer of a forward without backward.

    Buffers that the forward writes are copies. Gradients stay enabled as in a step, so that the ops are those
    of the step; nothing reads what autograd saves.
    """

    tree: OutputTree | None = None

    def __init__(
        self,
        model: torch.nn.Module,
        state: ModelState,
        batch: tuple[Sequence[torch.Tensor], BatchTree],
        evaluated: Evaluated,
        autocast: torch.dtype | None,
    ) -> None:
        super().__init__(
            model,
            state,
            cast(TracedOptimizer, NoOptimizer()),  # methods of an update are never called
            batch,
            loss=evaluated.loss,
            clip_grad_norm=None,
            clip_parameters="model",
            autocast=autocast,
            outputs=evaluated.outputs.without_norms(),
        )
        self._whole = evaluated.whole

    def trace(self, symbols: bool = False) -> Trace:
        """Run the forward in eval mode on fake CPU tensors. Raises as :meth:`StepTracer.trace` does."""
        with unchanged(self._modules.values()):
            for module in self._modules.values():
                module.training = False
            return super().trace(symbols)

    def _step(self, between: Callable[[], None] | None, tensors: list[torch.Tensor]) -> list[Result]:
        remaining = iter(tensors)
        buffers = take(remaining, self._state.buffers)
        inputs = list(take(remaining, self._batch_tree.names).values())
        with Interception():
            if between is not None:
                self._run_forward(buffers, inputs)
                between()
                self._stream.restart()
            return self._run_forward(buffers, inputs)

    def _run_forward(self, buffers: Tensors, inputs: list[torch.Tensor]) -> list[Result]:
        leaves = self._leaves({name: _is_differentiable(p) for name, p in self._state.params.items()})

        def run(model: torch.nn.Module) -> dict[tuple[str, str], torch.Tensor]:
            self._recorder.phase = FORWARD
            batch = unflatten_batch(self._batch_tree, inputs)
            with self._autocasting():
                output = self._call.output(model, batch)
                return self._whole_output(output) if self._whole else self._evaluated(output, batch)

        held = {**leaves, **{name: tensor.clone() for name, tensor in buffers.items()}}
        held = {f"model.{name}": tensor for name, tensor in held.items()}
        found = torch.func.functional_call(Borrowed(self._model, run), held, ())
        self._results = list(found)
        made: list[Result] = [tensor.detach() for tensor in found.values()]
        self._folding.check_forward()
        return made

    def _evaluated(self, output: object, batch: object) -> dict[tuple[str, str], torch.Tensor]:
        loss = find_loss(output, self._call.of_loss(batch), self._loss)
        with torch.no_grad():
            named = self._outputs.find(output, self._call.of_loss(batch))
        return {("loss", "loss"): loss, **{("output", name): value for name, value in named.items()}}

    def _whole_output(self, output: object) -> dict[tuple[str, str], torch.Tensor]:
        leaves, spec = pytree.tree_flatten_with_path(output)
        tensors = {i: leaf for i, (_, leaf) in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
        constants = {i: leaf for i, (_, leaf) in enumerate(leaves) if i not in tensors}
        names = {i: f"output{pytree.keystr(leaves[i][0])}" for i in tensors}
        self.tree = OutputTree(spec, constants, tuple(names.values()))
        return {("output", names[i]): tensor for i, tensor in tensors.items()}


def capture_forward(
    model: torch.nn.Module,
    example_batch: object,
    evaluated: Evaluated,
    *,
    autocast: torch.dtype | None = None,
    context: ir.Context | None = None,
) -> tuple[Capture, OutputTree | None]:
    """Trace a model's forward in eval mode; also return its output's tree if the program returns the output.

    The model and its mode stay unchanged. Raises subclasses of ShardcError from
    ``shardc.diagnostics.frontend``.
    """
    started, model = time.perf_counter(), uncompiled(model)
    state, batch = model_state(model), flatten_batch(example_batch)
    tracer = ForwardTracer(model, state, batch, evaluated, autocast)
    with collection_paused(), use_lazy_graph_module(True):
        trace = with_symbols(model, tracer)
        clean(trace.graph)
        step = finish(trace)
        traced = time.perf_counter()
        module = import_step(step, context)
    capture = Capture(
        module=module,
        graph=step.module,
        arguments=step.arguments,
        results=step.results,
        batch_tree=batch[1],
        constants=step.constants,
        hyperparameters=[],
        baked={},
        tied=state.tied,
        gradients={},
        written=trace.written,
        trace_s=traced - started,
        import_s=time.perf_counter() - traced,
        _values=values_of(state, ()),
    )
    return capture, tracer.tree


def _is_differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
