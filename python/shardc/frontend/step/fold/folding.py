"""Decides which calls of layers are traced and which are copied, and checks the copies."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from shardc.frontend.importing.recorder import FORWARD, NodeRecorder
from shardc.frontend.step.constant_value import answers
from shardc.frontend.step.fold.given import Given, given, lent
from shardc.frontend.step.fold.kind import Kind
from shardc.frontend.step.fold.recording import Recording
from shardc.frontend.step.fold.replay import Copied
from shardc.frontend.step.fold.sample import check_unwritten, handed_on
from shardc.frontend.step.fold.tape import Tape
from shardc.frontend.step.random_stream import RandomStream
from shardc.runtime.report.logs import TIMING
from shardc.runtime.torch_private import any_global_module_hook, saved_tensor_hooks, without_torch_functions

Call = Callable[..., object]


class Folding:
    """Knowledge of one trace about its layers.

    Without ``copies`` each call is traced, with the same edges.
    """

    def __init__(self, recorder: NodeRecorder, stream: RandomStream, *, copies: bool) -> None:
        self.index_reads = 0
        self.copied: list[Copied] = []
        self._recorder, self._stream, self._copies = recorder, stream, copies
        self._kinds: dict[Hashable, Kind] = {}
        self._is_inside = False
        self._tape: Tape | None = None

    def attach(self, tape: Tape) -> None:
        """Start with an empty graph."""
        self._tape = tape

    def call(self, module: torch.nn.Module, original: Call, args: tuple, kwargs: dict[str, object]) -> object:
        """Return the result of ``original(*args, **kwargs)``, a call of the module, traced or copied."""
        if self._is_inside or self._tape is None or not self._may_fold():
            return original(*args, **kwargs)
        with without_torch_functions():
            call = given(module, (args, kwargs), self._recorder.user_lines(), self._tape)
        if call is None:
            return original(*args, **kwargs)
        kind = self._kinds.setdefault(call.key, Kind(self._tape, self._stream))
        self._is_inside = True
        try:
            return self._copy(kind, call) if kind.sample is not None else self._trace(kind, call, original)
        finally:
            self._is_inside = False

    def _may_fold(self) -> bool:
        """Return whether calls may be copied: not in a backward, nor if others' hooks see the computation."""
        hooked = any_global_module_hook() or saved_tensor_hooks(True) is not None
        return self._recorder.phase == FORWARD and torch.is_grad_enabled() and not hooked

    def _copy(self, kind: Kind, call: Given) -> object:
        copied = Copied(kind, call)
        self.copied.append(copied)
        with without_torch_functions():
            return copied.run()

    def _trace(self, kind: Kind, call: Given, original: Call) -> object:
        """Trace a call with its own edges, so that its gradients are summed before they join others."""
        kind.calls += 1
        with without_torch_functions():
            # In reverse: autograd reaches them in the opposite order, like the inputs of a copied call.
            edges = [torch.ops.aten.alias.default(tensor) for tensor in reversed(call.differentiable)][::-1]
        instead = {id(t): edge for t, edge in zip(call.differentiable, edges, strict=True)}
        arguments = call.arguments(instead)

        def run() -> object:
            with lent(call.module, instead):
                return original(*arguments[0], **arguments[1])

        if not self._copies or kind.calls > 2 or kind.refused:
            return handed_on(run(), call, edges)
        recording = Recording(kind, call, edges, self._seen)
        result = handed_on(run(), call, edges)
        with without_torch_functions():
            recording.end(result)
        if kind.refused:
            TIMING.debug("trace: each %s is traced: %s", type(call.module).__name__, kind.refused)
        return result

    def _seen(self) -> object:
        """Return a value that changes if a layer reads something that differs between layers."""
        return self.index_reads, answers()

    def check_forward(self) -> None:
        """Raise Unfoldable if layers were used in the forward in ways that copies do not support."""
        if self._tape is None or not self.copied:
            return
        with without_torch_functions():
            for kind in self._kinds.values():
                kind.check_forward()
            for copied in self.copied:
                check_unwritten(copied.outputs, copied.output_nodes, self._tape)

    def check_backward(self) -> None:
        """Raise Unfoldable if a traced backward differs from its copies."""
        with without_torch_functions():
            for kind in self._kinds.values():
                kind.check_backward()
