"""Kernels as Triton modules, and calls of them in the interpreter."""

from __future__ import annotations

import atexit
import math
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
from torch_mlir import ir
from torch_mlir.dialects import func

from shardc.backends.body.extract import kernels
from shardc.backends.triton.emit.emit import emit_kernel
from shardc.backends.triton.emit.emitted import Emitted
from shardc.backends.triton.interpreter.interpret import Interpreter
from shardc.cost.machine import GPUS
from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.context import new_context
from shardc.dialects.kern.attention_maps import KEYS, ROLES, map_of, write_attention
from shardc.dialects.kern.kernel import kernel
from shardc.dialects.kern.size import Size, Symbol
from shardc.dialects.kern.types import builtin_type
from shardc.dialects.kern.yield_op import yield_values

sys.path.append(str(Path(__file__).parents[1] / "cpu"))
from attention_kernels import BACKWARD, FORWARD, Case
from bodies import Body, T

__all__ = ["BACKWARD", "FORWARD", "Body", "Case", "T", "emitted", "emitted_attention", "interpret"]


def emitted(body: Body, target: str = "sm_90", *, tf32: bool = False) -> Emitted:
    """The module of one kernel."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(body.text("f"))
        (found,) = kernels(module)
        return emit_kernel(found, GPUS[target], tf32=tf32)


def emitted_attention(
    case: Case,
    mask: torch.Tensor | None = None,
    config: Mapping[str, int] | None = None,
    target: str = "sm_90",
    *,
    unseen_lse: float = -math.inf,
    tf32: bool = False,
    symbolic: str = "",
) -> tuple[Emitted, Emitted]:
    """The forward and the backward module of an attention; sizes of the dims ``symbolic`` are numbers of each
    call, in this order.
    """
    symbols = [Symbol(number, 32) for number in range(len(symbolic))]

    def type_of(role: str) -> TensorType:
        type_ = case.type(role)
        shape = [
            Size.of(symbols[symbolic.index(d)]) if d in symbolic else n
            for d, n in zip(case.dims(role), type_.shape, strict=True)
        ]
        return type_.with_shape(tuple(shape))

    with new_context() as context, ir.Location.unknown() as loc:
        module = ir.Module.create()
        for name, roles, kind in (
            ("forward", FORWARD, "kern.attention"),
            ("backward", BACKWARD, "kern.attention_backward"),
        ):
            given, made = (roles[0] + ("mask",) * (mask is not None), roles[1])
            types = {r: type_of(r) for r in (*given, *made) if r != "mask"}
            dims: dict[str, Sequence[str | None]] = {r: case.dims(r) for r in types}
            if mask is not None:
                types["mask"] = TensorType(tuple(mask.shape), mask.dtype)
                names = ROLES["mask"][-mask.dim() :]
                dims["mask"] = [d if n > 1 else None for d, n in zip(names, mask.shape, strict=True)]
            group = case.heads // case.kv_heads
            maps = [map_of(dims[r], group if r in KEYS else 1, context) for r in (*given, *made)]
            with ir.InsertionPoint(module.body):
                integers = [ir.Type.parse("!torch.int", context)] * len(symbols)
                block = func.FuncOp(
                    name, ([*(write_type(types[r], context) for r in given), *integers], [])
                ).add_entry_block()
            ip = ir.InsertionPoint(block)
            arguments, results = ([builtin_type(types[r], context) for r in role] for role in (given, made))
            outs = [types[r] for r in made]
            sizes = {"symbols": symbols, "shapes": [types[r].shape for r in given]}
            body, _, _ = kernel(
                name, list(block.arguments), arguments, outs, values=config, **sizes, loc=loc, ip=ip
            )
            inside = ir.InsertionPoint(body)
            settings = case.causal, case.q_offset, case.scale, unseen_lse
            ins = list(body.arguments)[: len(given)]
            values = write_attention(kind, ins, results, maps, *settings, loc=loc, ip=inside)
            yield_values(values, loc=loc, ip=inside)
        forward, backward = (emit_kernel(k, GPUS[target], tf32=tf32) for k in kernels(module))
        return forward, backward


@cache
def interpreter() -> Interpreter:
    """One process for all tests."""
    made = Interpreter()
    made.__enter__()
    atexit.register(made.__exit__, None, None, None)
    return made


def interpret(
    kernel: Emitted,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[tuple[tuple[int, ...], torch.dtype]],
    *sizes: int,
) -> list[torch.Tensor]:
    """The results of a kernel, as the interpreter computes them."""
    program = (
        f"import torch\ncall = kernel({kernel.name!r}, {list(outputs)!r})\ndef graph(rank, "
        f"inputs):\n    return call(*inputs)\n"
    )
    return interpreter().run(program, [kernel], [*inputs, *sizes])
