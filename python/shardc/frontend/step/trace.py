"""Traces forward, loss, backward, clipping and ``optimizer.step()`` on fake tensors into one FX graph."""

from __future__ import annotations

import functools
import os
import re
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.fx import Node, Proxy
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.utils.checkpoint import set_checkpoint_early_stop

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.frontend import (
    DataDependent,
    FrozenValue,
    LibraryDataDependent,
    PythonRandom,
    TraceFailed,
)
from shardc.environment import FOLD_LAYERS
from shardc.frontend.fake_results import with_corrections
from shardc.frontend.importing.module_calls import ModuleCalls
from shardc.frontend.importing.recorder import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    Frames,
    NodeRecorder,
    caller_line,
    raising_line,
)
from shardc.frontend.operators.decompositions import decomposition_table
from shardc.frontend.operators.random import random_table
from shardc.frontend.step.batch import LossFunction, find_loss, unflatten_batch
from shardc.frontend.step.call import call_of
from shardc.frontend.step.constrained import Layouts, constrained
from shardc.frontend.step.fold.folding import Folding
from shardc.frontend.step.fold.layers import seen_by
from shardc.frontend.step.fold.noted import noting
from shardc.frontend.step.fold.tape import Tape, Unfoldable
from shardc.frontend.step.frozen import (
    Values,
    changes,
    check_same,
    drawn,
    generator_states,
    modules_of,
    python_values,
    restore,
    told,
)
from shardc.frontend.step.grad_norm import Gradients, clip, global_norm
from shardc.frontend.step.hooks import carry_hooks, check_hooks
from shardc.frontend.step.model_state import ModelState, has_storage, unchanged
from shardc.frontend.step.optimizer import Made, TracedOptimizer
from shardc.frontend.step.outputs import Outputs
from shardc.frontend.step.overrides.batch_norm import average_batches
from shardc.frontend.step.overrides.compiling import compiling
from shardc.frontend.step.overrides.fake_tensor_log import failures_unlogged
from shardc.frontend.step.overrides.interception import Interception
from shardc.frontend.step.overrides.python_random import undrawn
from shardc.frontend.step.random_stream import RandomStream
from shardc.frontend.step.spec import BatchTree, TensorSpec
from shardc.frontend.step.traced_tensor import current_stand_ins, node_of
from shardc.runtime.report.logs import TIMING
from shardc.runtime.torch_private import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    FunctionalTensorMode,
    UnsupportedFakeTensorException,
    autocast_for_all,
    dispatch_functionalize,
    recomputation_unchecked,
    without_torch_functions,
)

Tensors = dict[str, torch.Tensor]
Result = torch.Tensor | Proxy | None
"""Result type of make_fx; a proxy stands for a tensor that was not needed."""
NOTHING = Outputs()
ClipParameters = Literal["model", "optimizer"]
"""Parameters whose gradients form the global norm."""


@dataclass
class Trace:
    """Raw graph with ``arguments``, which returns ``results`` by role and name, then ``gradients`` or None.

    ``storages`` names the model's tensors by data address: none may be a constant of the graph. ``written``:
    attributes that the forward sets, by module and name.
    """

    graph: torch.fx.GraphModule
    arguments: list[TensorSpec]
    results: list[tuple[str, str]]
    gradients: list[str]
    where: Frames
    storages: dict[int, str]
    written: list[tuple[str, str]]


class StepTracer:
    """State of one trace of one step; ``trace()`` may be called again after a failure."""

    def __init__(
        self,
        model: torch.nn.Module,
        state: ModelState,
        optimizer: TracedOptimizer,
        batch: tuple[Sequence[torch.Tensor], BatchTree],
        *,
        loss: LossFunction | None,
        clip_grad_norm: float | None,
        clip_parameters: ClipParameters,
        autocast: torch.dtype | None,
        twice: bool = False,
        outputs: Outputs = NOTHING,
        noted: Collection[str] = (),
        layouts: Layouts | None = None,
    ) -> None:
        """Prepare a trace.

        ``outputs``: results of the step besides its loss. ``twice``: always trace two steps in a row, and
        reject a second one that is another program. ``noted``: modules whose calls are recorded on ops.
        ``layouts``: layouts of modules' outputs.
        """
        self._model, self._state, self._optimizer = model, state, optimizer
        self._inputs, self._batch_tree = batch
        self._loss, self._clip, self._autocast = loss, clip_grad_norm, autocast
        self._call = call_of(model, loss, unflatten_batch(batch[1], batch[0]))
        has_norm = clip_grad_norm is not None or bool(outputs.norms)
        clipped = state.params if has_norm and clip_parameters == "model" else ()
        read = dict.fromkeys([*optimizer.names, *clipped])
        self._trained = [name for name in read if state.params[name].requires_grad]
        self._twice, self._modules, self._outputs = twice, modules_of(model, loss), outputs
        self._noted, self._layouts = noted, layouts or {}
        self._found: Tensors = {}
        self._results: list[tuple[str, str]] = []
        self._where = caller_line()
        self._stream = RandomStream()

    def trace(self, symbols: bool = False) -> Trace:
        """Run the step on fake CPU tensors. Raises TraceFailed, DataDependent or another ShardcError.

        ``symbols``: turn sizes and numbers that depend on values into symbols; otherwise they are rejected.
        """
        self._symbols = symbols
        with ExitStack() as stack:
            fake = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv() if symbols else None)
            stack.enter_context(self._stream.opened())
            settings = set_checkpoint_early_stop(False), fake, compiling(), autocast_for_all()
            for setting in (*settings, failures_unlogged()):
                stack.enter_context(setting)
            if symbols:
                stack.enter_context(recomputation_unchecked())
            stack.enter_context(unchanged(self._modules.values()))
            average_batches(self._model)
            arguments, tensors = self._arguments()
            before, states = python_values(self._modules), generator_states()
            graph, after = self._run(tensors) if symbols else self._folded(tensors)
            if (generator := drawn(states)) is not None:
                graph, after = self._undrawn(tensors, generator)
                restore(states)
            written = changes(before, after)
            if self._twice or written:
                self._check_again(graph, tensors, before, after)
        results = self._results
        return Trace(graph, arguments, results, self._trained, self._where, self._storages(), written)

    def _folded(self, tensors: list[torch.Tensor]) -> tuple[torch.fx.GraphModule, Values]:
        """Run like :meth:`_run`, with copies of equal layers if they are certain to be right."""
        try:
            return self._run(tensors, copies=FOLD_LAYERS.get())
        except (Unfoldable, ShardcError) as error:
            if not self._folding.copied:
                raise
            TIMING.info("trace: once more, each layer by itself: %s", str(error).splitlines()[0])
        return self._run(tensors)

    def _run(
        self,
        tensors: list[torch.Tensor],
        between: Callable[[], None] | None = None,
        watch: Callable[[], bool] | None = None,
        copies: bool = False,
    ) -> tuple[torch.fx.GraphModule, Values]:
        """Return the raw graph of a step, and the modules' Python values after it.

        ``between``: called after a forward and backward that precede those of the graph's results. Raises
        Unfoldable if ``copies`` of layers may be wrong.
        """
        calls = ModuleCalls(self._model, self._noted) if self._noted else None
        self._recorder = NodeRecorder(__file__, self._where, watch, calls)
        self._folding = Folding(self._recorder, self._stream, copies=copies)
        table = with_corrections({**decomposition_table(), **random_table(self._stream)})
        # A lambda, because make_fx counts a bound method's self among the arguments.
        traced = make_fx(lambda flat: self._record(flat, between), table, tracing_mode="real")
        self._stream.restart()
        laid_out = constrained(self._model, self._layouts)
        layers = nullcontext() if self._symbols else seen_by(self._folding, self._model)
        noted = nullcontext() if calls is None else noting(calls, self._recorder)
        with unchanged(self._modules.values()), laid_out, layers, noted:
            try:
                return traced(tensors), python_values(self._modules)
            except Unfoldable:
                raise
            except Exception as error:
                frame, line = self._where[0]
                last_line = self._recorder.line if _in_backward(error) else f"{frame}:{line}"
                raise _explained(error, last_line) from error

    def _check_again(
        self, graph: torch.fx.GraphModule, tensors: list[torch.Tensor], before: Values, after: Values
    ) -> None:
        """Raise FrozenValue unless the next step is the same program."""
        seen = [before, after]
        try:
            again, last = self._run(tensors, lambda: seen.append(python_values(self._modules)))
        except ShardcError as error:
            raise FrozenValue(changes=told(before, after), where=error.where) from error
        check_same(graph, again, (before, seen[-1], last), self._modules)

    def _undrawn(self, tensors: list[torch.Tensor], generator: str) -> tuple[torch.fx.GraphModule, Values]:
        """Trace again with unknown numbers in place of drawn ones. Raises PythonRandom if any matters."""
        states = generator_states()
        try:
            with undrawn():
                traced = self._run(tensors)
        except ShardcError as error:
            raise PythonRandom(generator=generator, where=error.where) from error
        if drawn(states) is not None:
            raise PythonRandom(generator=generator, where=self._line_of_draw(tensors))
        return traced

    def _line_of_draw(self, tensors: list[torch.Tensor]) -> str:
        """Return the line of the first op after a draw, found by another trace."""
        states = generator_states()
        self._run(tensors, watch=lambda: drawn(states) is not None)
        return self._recorder.line

    def _arguments(self) -> tuple[list[TensorSpec], list[torch.Tensor]]:
        """Return specs and contiguous fake tensors of all arguments except lifted constants, in order.

        Parameters and optimizer state get no tensors yet, since copies need none.
        """
        optimizer = self._optimizer
        held = [("param", name, p.shape, p.dtype) for name, p in self._state.params.items()]
        held += [("opt_state", slot.name, slot.shape, slot.dtype) for slot in optimizer.slots]
        blanks = {(tuple(shape), dtype): _blank(shape, dtype) for _, _, shape, dtype in held}
        self._untouched = [(role, name, blanks[tuple(shape), dtype]) for role, name, shape, dtype in held]
        named = [("buffer", n, _blank(b.shape, b.dtype)) for n, b in self._state.buffers.items()]
        hypers = zip(optimizer.hyperparameters, optimizer.hyper_tensors(), strict=True)
        named += [("hyper", item.name, tensor) for item, tensor in hypers]
        inputs = zip(self._batch_tree.names, self._inputs, strict=True)
        named += [("input", name, _blank(t.shape, t.dtype)) for name, t in inputs]
        named += [("seed", "seed", _blank((), torch.int64))]
        every = [*self._untouched, *named]
        specs = [TensorSpec(name, role, tuple(t.shape), t.dtype) for role, name, t in every]
        return specs, [tensor for _, _, tensor in named]

    def _storages(self) -> dict[int, str]:
        tensors = {**self._state.params, **self._state.buffers}
        real = {name: tensor for name, tensor in tensors.items() if has_storage(tensor) and tensor.numel()}
        return {tensor.untyped_storage().data_ptr(): name for name, tensor in real.items()}

    def _record(self, tensors: list[torch.Tensor], between: Callable[[], None] | None) -> list[Result]:
        proxy_mode = get_proxy_mode()
        assert proxy_mode is not None
        self._recorder.attach(proxy_mode.tracer)
        self._stream.seed = tensors[-1]  # as seen by decompositions, below functionalization
        self._tracer = proxy_mode.tracer
        self._folding.attach(Tape(proxy_mode.tracer, self._recorder, self._stream.seed))
        self._params, self._slots = self._placeholders(proxy_mode.tracer.graph)
        step = functools.partial(self._step, between)
        return dispatch_functionalize(step, FunctionalTensorMode())(tensors)

    def _placeholders(self, graph: torch.fx.Graph) -> tuple[dict[str, Node], dict[str, Node]]:
        """Return placeholders of parameters and optimizer state, placed before those of tensors."""
        found: dict[str, dict[str, Node]] = {"param": {}, "opt_state": {}}
        with graph.inserting_before(next(iter(graph.nodes))):
            for number, (role, name, value) in enumerate(self._untouched):
                node = found[role][name] = graph.placeholder(f"{role}_{number}")
                node.meta["val"] = value
        return found["param"], found["opt_state"]

    def _step(self, between: Callable[[], None] | None, tensors: list[torch.Tensor]) -> list[Result]:
        remaining = iter(tensors)
        buffers = take(remaining, self._state.buffers)
        hyper = take(remaining, [item.name for item in self._optimizer.hyperparameters])
        inputs = list(take(remaining, self._batch_tree.names).values())

        with Interception():
            if between is not None:
                self._differentiate(buffers, inputs)
                between()
                self._stream.restart()
            loss, grads, buffers = self._differentiate(buffers, inputs)
        self._recorder.phase = OPTIMIZER
        updated, state = self._update(grads, hyper)
        read = {name: Proxy(node, self._tracer) for name, node in self._params.items()}
        return [*self._returned(loss, {**read, **updated}, state, buffers), *grads.values()]

    def _returned(self, loss: torch.Tensor, params: Made, state: Made, buffers: Tensors) -> list[Result]:
        """Return the step's results except gradients, and store the role and name of each in ``_results``."""
        by_role = {"loss": {"loss": loss}, "output": self._outputs_in_order()}
        by_role |= {"param": params, "opt_state": state, "buffer": buffers}
        self._results = [(role, name) for role, named in by_role.items() for name in named]
        return [tensor for named in by_role.values() for tensor in named.values()]

    def _outputs_in_order(self) -> Tensors:
        return {name: self._found[name] for name in self._outputs.wanted}

    def _differentiate(
        self, buffers: Tensors, inputs: list[torch.Tensor]
    ) -> tuple[torch.Tensor, Gradients, Tensors]:
        """Return loss, gradients by parameter, and the buffers after the forward."""
        leaves = self._leaves({name: param.requires_grad for name, param in self._state.params.items()})

        def run(model: torch.nn.Module) -> tuple[torch.Tensor, Gradients]:
            self._recorder.phase = FORWARD
            loss = self._forward(model, unflatten_batch(self._batch_tree, inputs))
            self._folding.check_forward()
            self._recorder.phase = BACKWARD
            torch.autograd.backward(loss)  # reentrant checkpointing does not support torch.autograd.grad
            self._folding.check_backward()
            check_hooks(self._state.params, leaves)
            return loss.detach(), {name: leaves[name].grad for name in self._trained}

        # The forward writes running statistics into these; functional_call records replaced buffers.
        held = {**leaves, **{name: tensor.clone() for name, tensor in buffers.items()}}
        held = {f"model.{name}": tensor for name, tensor in held.items()}
        loss, grads = torch.func.functional_call(Borrowed(self._model, run), held, ())
        with without_torch_functions():  # hooks may have written to parameters
            nodes = ((name, node_of(leaf, self._tracer)) for name, leaf in leaves.items())
            self._params = {name: node for name, node in nodes if node is not None}
        return loss, grads, {name: held[f"model.{name}"].detach() for name in buffers}

    def _leaves(self, requires_grad: Mapping[str, bool]) -> Tensors:
        """Return a tensor for each parameter, with its hooks."""
        with without_torch_functions():
            made = zip(self._params, current_stand_ins([*self._params.values()]), strict=True)
            leaves = {name: tensor.requires_grad_(requires_grad[name]) for name, tensor in made}
        carry_hooks(self._state.params, leaves)
        return leaves

    def _forward(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        with self._autocasting():
            output = self._call.output(model, batch)
            loss = find_loss(output, self._call.of_loss(batch), self._loss)
            with torch.no_grad():
                self._found = self._outputs.find(output, self._call.of_loss(batch))
            return loss

    def _autocasting(self) -> AbstractContextManager[object]:
        return nullcontext() if self._autocast is None else torch.autocast("cpu", self._autocast)

    def _update(self, grads: Gradients, hyper: Tensors) -> tuple[Made, Made]:
        if self._clip is not None or self._outputs.norms:
            self._recorder.label = (("optimizer:clip_grad_norm", 0),)
            norm = global_norm(grads)
            self._found |= dict.fromkeys(self._outputs.norms, torch.zeros(()) if norm is None else norm)
            grads = dict(grads) if norm is None or self._clip is None else clip(grads, norm, self._clip)
        self._recorder.label = ((f"optimizer:{self._optimizer.kind}", 0),)
        every = {name: grads.get(name) for name in self._optimizer.names}
        return self._optimizer.step(self._params, every, self._slots, hyper)


class Borrowed(torch.nn.Module):
    """Module that runs a whole forward and backward while ``functional_call`` replaces the model's tensors.

    Activation checkpointing runs parts of the forward during the backward, which must use those tensors, too.
    """

    def __init__(self, model: torch.nn.Module, run: Callable[[torch.nn.Module], object]) -> None:
        super().__init__()
        self.model, self.run = model, run

    def forward(self) -> object:
        return self.run(self.model)


def _blank(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=dtype, device="cpu")


def take(tensors: Iterator[torch.Tensor], names: Iterable[str]) -> Tensors:
    return {name: next(tensors) for name in names}


def _in_backward(error: Exception) -> bool:
    """Return whether autograd's engine raised the error, or was running when it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.name == "_engine_run_backward" for frame in frames)


def _explained(error: Exception, last_line: str) -> ShardcError:
    """Convert an error to one for the user, at the innermost line of the user's code.

    In the backward no such line is active; there ``last_line`` is that of the op whose gradient came last,
    elsewhere that of the caller.
    """
    where = raising_line(error.__traceback__) or last_line
    if isinstance(error, ShardcError):
        return error if error.where else type(error)(where=where, **error.fields)
    dependent = LibraryDataDependent if f"{os.sep}site-packages{os.sep}" in (where or "") else DataDependent
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return dependent(op=str(getattr(error, "func", None)), where=where)
    if isinstance(error, GuardOnDataDependentSymNode):
        return dependent(op="Python code", where=where)
    if isinstance(error, UnsupportedFakeTensorException):
        return TraceFailed(reason=str(error), hint=TraceFailed.REWRITE, where=where)
    first_line = next(iter(str(error).splitlines()), "")
    is_of_tracing = _OF_TRACING.search(str(error)) is not None
    hint = TraceFailed.REWRITE if is_of_tracing else TraceFailed.RUN_WITHOUT
    return TraceFailed(reason=f"{type(error).__name__}: {first_line}", hint=hint, where=where)


_OF_TRACING = re.compile(r"in-?place|numpy|functionaliz|data_ptr|mutat")
"""Words in errors that PyTorch raises for a traced tensor but not for a real one."""
