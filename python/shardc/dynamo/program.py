"""Program of one ``torch.compile`` graph: a Python function that calls ATen and kernels."""

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
from shardc.dynamo.checks import Check, checked
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
    """Executable of a graph. AOTAutograd stores it on disk as the name of its program in the program cache.

    ``key`` is that name; None for a program that is not stored, which AOTAutograd then does not store either.
    ``constants`` follow the inputs. ``scalars``: CPU scalars among the arguments of a GPU program.
    ``graphs``: how to capture it as a CUDA graph, if at all. ``checks``: calls that look at the last
    results, and may raise errors. ``strict``: whether an unexpected result is an error (see
    :func:`load`).
    """

    run: Callable[[Any], Sequence[Any]]
    key: str | None = None
    device: torch.device = HOST
    constants: Sequence[torch.Tensor] = ()
    is_complex: bool = False
    scalars: HostScalars = NO_SCALARS
    graphs: GraphPlan | None = None
    checks: tuple[Check, ...] = ()
    strict: bool = True

    def __post_init__(self) -> None:
        take_inputs_in_a_list(self)
        self._set(self.run)

    def __call__(self, inputs: Sequence[Any]) -> Any:
        return self.run(inputs)

    def prepare_for_serialization(self) -> None:
        """Drop what cannot be stored. Raises NotKept if the program is not in the program cache."""
        if self.key is None:
            raise NotKept("shardc keeps no program of this graph")
        del self.run

    def post_compile(self, example_inputs: object, constants: object, graph_kwargs: object) -> None:
        """Load the program in another process. Raises Gone, after which AOTAutograd traces again."""
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
        run = partial(checked, run, self.checks) if self.checks else run
        self.run = take_inputs_in_a_list(partial(_unwatched, run) if self.is_complex else run)


Compiler = Callable[["GraphModule", Sequence[object]], GraphProgram]


def runner(
    text: str, library: Kernels | None, device: torch.device, graphs: GraphPlan | None, strict: bool
) -> Runner:
    """Return a function that runs a program with its kernels, from CUDA graphs if ``graphs`` is given."""
    log.debug("%s", text)
    program = partial(load(text, library, strict), SimpleNamespace(device=device))
    program = program if library is None else partial(_in_memory, program)
    if graphs is not None:
        from shardc.dynamo.cuda_graph import GraphedProgram  # late import: CPU programs do not need it

        program = GraphedProgram(program, graphs)
    return program if device.type != "cuda" else partial(_on, device, program)


def _on(device: torch.device, program: Runner, inputs: list[Any]) -> Sequence[Any]:
    """Run ``program`` with ``device`` as the current device, to which Triton launches."""
    with current(device):
        return program(inputs)


def _in_memory(function: Runner, inputs: list[Any]) -> Sequence[Any]:
    """Run ``function`` with materialized copies of inputs whose values differ from their memory.

    Kernels read memory only. Autograd makes zero gradients without memory, as for ``sgn``, and the imaginary
    part of a conjugate is the negative of its memory. Writes to such a copy are copied back to the input.
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
    """Replace each such input by a copy and return the pairs."""
    copied = []
    for number, x in enumerate(inputs):
        if isinstance(x, torch.Tensor) and (x.is_neg() or is_zero_tensor(x)):
            inputs[number] = torch.empty_like(x).copy_(x)
            copied.append((x, inputs[number]))
    return copied


def with_host_scalars(
    function: Runner, scalars: HostScalars, device: torch.device, inputs: list[Any]
) -> Sequence[Any]:
    """Run ``function`` on ``device`` with copies of CPU inputs, and copy results back to the CPU.

    A result that is such an input is returned as the caller's own tensor. Writes to a copy go back to the
    input.
    """
    given = {n: inputs[n] for n in scalars.inputs}
    for n, x in given.items():
        inputs[n] = _moved(x, device)
    own = {id(inputs[n]): x for n, x in given.items()}
    written = [(x, inputs[n]) for n, x in given.items() if n in scalars.written]
    copies = [inputs[n] for n in given]  # kept alive so that their ids stay unique
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
    """Run ``function`` with its constants after its inputs: the graph's own, or copies on the GPU."""
    inputs.extend(placed())  # into the list that the program empties
    return function(inputs)


def _unwatched(function: Runner, inputs: list[Any]) -> Sequence[Any]:
    """Run ``function`` outside of the mode in which AOTAutograd checks aliasing of custom operators.

    Under any dispatch mode ATen forgets conjugations inside its own kernels: the first call of a complex
    ``linalg.pinv`` would give another matrix (https://github.com/pytorch/pytorch/issues/198118).
    """
    if isinstance(get_current_dispatch_mode(), AliasAnalysis):
        with pop_mode_temporarily():
            return function(inputs)
    return function(inputs)
