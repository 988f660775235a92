"""The program of one graph of ``torch.compile``: a Python function that calls ATen and kernels."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from shardc.backends.torch.load_graph import current
from shardc.backends.torch.load_graph import load_graph as load
from shardc.dynamo import program_cache
from shardc.frontend.graph.host_scalars import HostScalars
from shardc.runtime.kernels.loaders import Kernels
from shardc.runtime.torch_private import (
    AliasAnalysis,
    Gone,
    NotKept,
    OutputCode,
    get_current_dispatch_mode,
    is_zero_tensor,
    pop_mode_temporarily,
    take_inputs_in_a_list,
)

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from shardc.dynamo.cuda_graph import GraphPlan

log = logging.getLogger("shardc.dynamo.backend")

NO_SCALARS, HOST = HostScalars(), torch.device("cpu")

Runner = Callable[[list[Any]], Sequence[Any]]
"""A function of a list of inputs, which it empties."""


@dataclass(eq=False, repr=False)
class GraphProgram(OutputCode):
    """What runs a graph, as AOTAutograd keeps it on disk: by the name of its program in the program cache.

    ``key`` is that name; None for what is not there, which AOTAutograd then does not keep either.
    ``constants`` follow the inputs. ``scalars`` are those of the CPU in a program of a GPU; ``graphs``: how
    it is captured, if it is to be; ``asserted``: the messages for the last results, as many truth values,
    where one is false; ``strict``: whether another result than expected is an error (see :func:`load`).
    """

    run: Callable[[Any], Sequence[Any]]
    key: str | None = None
    device: torch.device = HOST
    constants: Sequence[torch.Tensor] = ()
    is_complex: bool = False
    scalars: HostScalars = NO_SCALARS
    graphs: GraphPlan | None = None
    asserted: tuple[str, ...] = ()
    strict: bool = True

    def __post_init__(self) -> None:
        take_inputs_in_a_list(self)
        self._set(self.run)

    def __call__(self, inputs: Sequence[Any]) -> Any:
        return self.run(inputs)

    def prepare_for_serialization(self) -> None:
        """Raises NotKept where the program cannot be found again."""
        if self.key is None:
            raise NotKept("shardc keeps no program of this graph")
        del self.run

    def post_compile(self, example_inputs: object, constants: object, graph_kwargs: object) -> None:
        """Reads the program in another process. Raises Gone, after which AOTAutograd traces again."""
        assert self.key is not None, "what has no key is not written"
        found = program_cache.load(self.key)
        if found is None:
            raise Gone(f"program {self.key} is gone")
        self._set(runner(*found, self.device, self.graphs, self.strict))

    def _set(self, run: Runner) -> None:
        if self.scalars != NO_SCALARS:
            run = partial(with_host_scalars, run, self.scalars, self.device)
        if self.constants:
            placed = cache(lambda: [constant.to(self.device) for constant in self.constants])
            run = partial(_with_constants, run, placed)
        run = partial(_asserting, run, self.asserted) if self.asserted else run
        self.run = take_inputs_in_a_list(partial(_unwatched, run) if self.is_complex else run)


Compiler = Callable[["GraphModule", Sequence[object]], GraphProgram]


def runner(
    text: str, library: Kernels | None, device: torch.device, graphs: GraphPlan | None, strict: bool
) -> Runner:
    """A program with its kernels as a function, replayed from CUDA graphs if ``graphs`` says how."""
    log.debug("%s", text)
    program = partial(load(text, library, strict), SimpleNamespace(device=device))
    program = program if library is None else partial(_in_memory, program)
    if graphs is not None:
        from shardc.dynamo.cuda_graph import GraphedProgram  # loads what a CPU does without

        program = GraphedProgram(program, graphs)
    return program if device.type != "cuda" else partial(_on, device, program)


def _on(device: torch.device, program: Runner, inputs: list[Any]) -> Sequence[Any]:
    """``program`` with ``device`` as the current one: Triton's launches go there."""
    with current(device):
        return program(inputs)


def _in_memory(function: Runner, inputs: list[Any]) -> Sequence[Any]:
    """``function`` with copies of inputs that differ from their memory, which is all that kernels read.

    Autograd makes gradients that are zero without memory, as that of ``sgn``; the imaginary part of a
    conjugate is the negative of its memory. What the function writes to such a copy, the input gets.
    """
    copied = _copy_odd(inputs)
    results = function(inputs)
    if not copied:
        return results
    for x, copy in copied:
        if not torch.equal(x, copy):
            x.copy_(copy)
    return [next((x for x, copy in copied if copy is r), r) for r in results]


def _copy_odd(inputs: list[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Puts a copy in the place of each such input: the pairs of both."""
    copied = []
    for number, x in enumerate(inputs):
        if isinstance(x, torch.Tensor) and (x.is_neg() or is_zero_tensor(x)):
            inputs[number] = torch.empty_like(x).copy_(x)
            copied.append((x, inputs[number]))
    return copied


def with_host_scalars(
    function: Runner, scalars: HostScalars, device: torch.device, inputs: list[Any]
) -> Sequence[Any]:
    """``function`` of ``device`` with copies there of inputs that are on the CPU, and copies here of results.

    A result that is such an input is the caller's own tensor, and what is written to a copy the input gets.
    """
    given = {n: inputs[n] for n in scalars.inputs}
    for n, x in given.items():
        inputs[n] = _moved(x, device)
    own = {id(inputs[n]): x for n, x in given.items()}
    written = [(x, inputs[n]) for n, x in given.items() if n in scalars.written]
    copies = [inputs[n] for n in given]  # alive, so that no other tensor has their ids
    results = list(function(inputs))
    for x, copy in written:
        x.copy_(copy)
    for n in scalars.results:
        results[n] = own[id(results[n])] if id(results[n]) in own else results[n].cpu()
    del copies
    return results


def _moved(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    return x.to(device, non_blocking=True)


def _with_constants(
    function: Runner, placed: Callable[[], list[torch.Tensor]], inputs: list[Any]
) -> Sequence[Any]:
    """``function`` with its constants behind its inputs: the graph's own, or for a GPU copies there."""
    inputs.extend(placed())  # into the list that the program empties
    return function(inputs)


def _asserting(function: Runner, messages: tuple[str, ...], inputs: list[Any]) -> Sequence[Any]:
    """``function`` without its last results: where one is false, a RuntimeError says so, as in eager mode."""
    results = function(inputs)
    for truth, message in zip(results[-len(messages) :], messages, strict=True):
        torch.ops.aten._assert_async.msg(truth, message)
    return results[: -len(messages)]


def _unwatched(function: Runner, inputs: list[Any]) -> Sequence[Any]:
    """``function`` without the mode of AOTAutograd's first calls, which checks what custom operators alias.

    Under any dispatch mode ATen forgets conjugations inside its own kernels: the complex ``linalg.pinv`` of a
    first call would be another matrix (https://github.com/pytorch/pytorch/issues/198118).
    """
    if isinstance(get_current_dispatch_mode(), AliasAnalysis):
        with pop_mode_temporarily():
            return function(inputs)
    return function(inputs)
