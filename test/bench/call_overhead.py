"""Cost of calls of a compiled function with three small kernels, against TorchInductor and eager.

    python test/bench/call_overhead.py

CPU time of one thread, medians of interleaved rounds, tensors of about 64 elements. ``program`` is the
emitted function, ``kernels`` the machine code called through ctypes with its addresses ready. What lies
between ``torch.compile`` and the program (guards, AOTAutograd's wrappers) is PyTorch's; ``nothing`` is a
backend of AOTAutograd that computes nothing.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from machine import heading, table
from torch._dynamo.backends.common import aot_autograd

from shardc.dynamo import program as graph_program

Tensors = tuple[torch.Tensor, ...]
ROUNDS, CALLS = 15, 700


def three(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Tensors:
    """Sizes differ: no two of them are one kernel."""
    return F.gelu(x * 2 + 1), F.gelu((y + 1) * 3, approximate="tanh"), (z - 1).sigmoid() * z


def nothing(graph: torch.fx.GraphModule, example_inputs: Any) -> Callable[[list[Any]], Tensors]:
    made = tuple(torch.empty(n) for n in (64, 63, 62))

    def run(inputs: list[Any]) -> Tensors:
        inputs.clear()
        return made

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def compiled(arguments: Tensors) -> tuple[Callable[..., Any], Callable[..., Any], Callable[[], None]]:
    """``three`` by our backend; its program; its kernels alone."""
    found: list[Any] = []
    load = graph_program.load
    graph_program.load = lambda text, library, *more: (
        found.append((text, library, load(text, library, *more))) or found[-1][2]
    )
    ours = torch.compile(three, backend="shardc", dynamic=False)
    ours(*arguments)
    graph_program.load = load
    text, library, program = found[0]
    names = [line.split('"')[1] for line in text.splitlines() if "= kernel(" in line]
    machine = ctypes.CDLL(str(library.path))
    calls, kept = [], []
    for name, tensor in zip(names, arguments, strict=True):
        entry = machine[name]
        entry.argtypes, entry.restype = [ctypes.c_void_p], None
        out = torch.empty_like(tensor)
        # One call, of so many elements.
        slots = (ctypes.c_void_p * 4)(1, tensor.numel(), tensor.data_ptr(), out.data_ptr())
        kept += [out, slots]
        calls.append((entry, ctypes.addressof(slots)))

    def kernels(kept: list[Any] = kept) -> None:
        for entry, address in calls:
            entry(address)

    rank = SimpleNamespace(device=torch.device("cpu"))
    return ours, lambda *given: program(rank, list(given)), kernels


def microseconds(call: Callable[[], Any]) -> float:
    start = time.thread_time()
    for _ in range(CALLS):
        call()
    return (time.thread_time() - start) / CALLS * 1e6


def main() -> None:
    torch.set_num_threads(1)
    x = torch.randn(64), torch.randn(63), torch.randn(62)
    with torch.no_grad():
        ours, program, kernels = compiled(x)
        inductor = torch.compile(three, dynamic=False)
        floor = torch.compile(lambda *a: three(*a), backend=aot_autograd(fw_compiler=nothing), dynamic=False)
        contenders = {
            "torch.compile, shardc": lambda: ours(*x),
            "torch.compile, Inductor": lambda: inductor(*x),
            "torch.compile, nothing": lambda: floor(*x),
            "eager": lambda: three(*x),
            "program": lambda: program(*x),
            "kernels": kernels,
        }
        for call in contenders.values():
            call()
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(ROUNDS):
            for name, call in contenders.items():
                times[name].append(microseconds(call))
    print(heading("Calling three kernels"))
    print(table(["call", "us"], [[name, statistics.median(found)] for name, found in times.items()]))


if __name__ == "__main__":
    main()
