"""A library of kernels for programs on the CPU, whose calls run in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch_mlir import ir

from shardc.backends.body.extract import kernel_name, kernels
from shardc.backends.triton.emit.emit import emit_kernel
from shardc.backends.triton.emit.emitted import Emitted
from shardc.backends.triton.interpreter.interpret import Interpreter
from shardc.cost.machine import Gpu

PROGRAM = """
import torch

bound = {bound}

def graph(rank, inputs):
    return {call}
"""
Output = tuple[tuple[Any, ...], torch.dtype] | int


class InterpretedLibrary:
    """What :class:`shardc.runtime.kernels.library.Library` is, for the kernels of ``module``."""

    path = None

    def __init__(self, module: ir.Module, target: Gpu, interpreter: Interpreter) -> None:
        self.interpreter = interpreter
        self.emitted: dict[str, Emitted] = {}
        for kernel in kernels(module):
            if kernel_name(kernel) not in self.emitted:
                self.emitted[kernel_name(kernel)] = emit_kernel(kernel, target)

    def kernel(
        self,
        name: str,
        outputs: Sequence[Output],
        size: int | None = None,
        checks: Mapping[int, str] | None = None,
    ) -> Callable[..., tuple[torch.Tensor, ...]]:
        program = PROGRAM.format(
            bound=f"kernel({name!r}, {outputs!r}, {size}, {dict(checks or {})!r})", call="bound(*inputs)"
        )

        def call(*given: Any) -> tuple[torch.Tensor, ...]:
            return _put_back(outputs, given, self.interpreter.run(program, [self.emitted[name]], given))

        return call

    def batch(
        self, name: str, members: Sequence[tuple[int, Sequence[Output]]]
    ) -> Callable[..., list[tuple[torch.Tensor, ...]]]:
        program = PROGRAM.format(bound=f"kernels({name!r}, {members!r})", call="bound(*inputs)")

        def call(*given: tuple[torch.Tensor, ...]) -> list[tuple[torch.Tensor, ...]]:
            made = self.interpreter.run(program, [self.emitted[name]], given)
            return [_put_back(outputs, g, m) for (_, outputs), g, m in zip(members, given, made, strict=True)]

        return call


def _put_back(
    outputs: Sequence[Output], given: Sequence[Any], made: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Results that were written into what the other process took for an operand are written into
    the operand.
    """
    return tuple(given[o].copy_(m) if isinstance(o, int) else m for o, m in zip(outputs, made, strict=True))
