"""Builders of ``kern.attention`` and its backward for tests and benchmarks, and their f64 references."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_mlir import ir
from torch_mlir.dialects import func

from shardc.backends.cpu.compile import build_library
from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.context import new_context
from shardc.dialects.kern.attention_maps import KEYS, ROLES, map_of, write_attention
from shardc.dialects.kern.kernel import INTEGER, kernel
from shardc.dialects.kern.size import Symbol
from shardc.dialects.kern.types import builtin_type
from shardc.dialects.kern.yield_op import yield_values
from shardc.runtime.kernels.library import Library

FORWARD = ("q", "k", "v"), ("out", "lse")
BACKWARD = ("grad_out", "q", "k", "v", "out", "lse"), ("dq", "dk", "dv")


@dataclass(frozen=True)
class Case:
    """One attention. ``heads_last``: heads lie beside their sizes, ``[batch, row, head, size]``.

    ``place``: that of the first row, which the kernel is given as it runs; 0 for a kernel without.
    """

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    size: int
    value_size: int
    dtype: torch.dtype = torch.float32
    causal: bool = False
    q_offset: int = 0
    heads_last: bool = False
    place: int = 0

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.size)

    def dims(self, role: str) -> str:
        dims = ROLES[role]
        return dims[0] + dims[2] + dims[1] + dims[3:] if self.heads_last else dims

    def type(self, role: str) -> TensorType:
        sizes = {
            "b": self.batch,
            "h": self.kv_heads if role in KEYS else self.heads,
            "m": self.queries,
            "n": self.keys,
        }
        sizes |= {"d": self.size, "e": self.value_size}
        return TensorType(
            tuple(sizes[d] for d in self.dims(role)), torch.float32 if role == "lse" else self.dtype
        )

    def tensors(self) -> dict[str, Tensor]:
        """Random q, k, v and grad_out in this case's layout."""
        return {
            role: torch.randn(self.type(role).shape).to(self.dtype) for role in ("q", "k", "v", "grad_out")
        }

    def ordered(self, x: Tensor) -> Tensor:
        """To ``[batch, head, row, ...]`` and back."""
        return x.transpose(1, 2) if self.heads_last else x


def compiled_attention(case: Case, mask: Tensor | None = None) -> tuple[Callable, Callable]:
    """The forward kernel (q, k, v, mask) -> (out, lse) and the backward kernel, from one library."""
    module, outputs = attention_module(case, mask)
    library = Library(build_library(module))
    forward, backward = (library.kernel(name, found) for name, found in outputs.items())
    return forward, backward


def attention_module(case: Case, mask: Tensor | None = None) -> tuple[ir.Module, dict[str, list]]:
    """Both kernels, and the shape and dtype of each result of each."""
    with new_context() as context, ir.Location.unknown() as loc:
        module = ir.Module.create()
        outputs = {}
        for name, (given, made), kind in (
            ("forward", FORWARD, "kern.attention"),
            ("backward", BACKWARD, "kern.attention_backward"),
        ):
            inputs = [case.type(r) for r in given]
            dims = [list(case.dims(r)) for r in (*given, *made)]
            if mask is not None:
                inputs.append(TensorType(tuple(mask.shape), mask.dtype))
                names = ROLES["mask"][-mask.dim() :]
                dims.insert(
                    len(given), [d if n > 1 else None for d, n in zip(names, mask.shape, strict=True)]
                )
            results = [case.type(r) for r in made]
            roles = [*given, *["mask"][: mask is not None], *made]
            group = case.heads // case.kv_heads
            maps = [map_of(d, group if r in KEYS else 1, context) for d, r in zip(dims, roles, strict=True)]
            numbers = [Symbol(0, case.place)][: case.place]
            taken = [*(write_type(t, context) for t in inputs), *[ir.Type.parse(INTEGER)] * len(numbers)]
            with ir.InsertionPoint(module.body):
                block = func.FuncOp(name, (taken, [])).add_entry_block()
            ip = ir.InsertionPoint(block)
            arguments, made_types = ([builtin_type(t, context) for t in types] for types in (inputs, results))
            shapes = {"symbols": numbers, "shapes": [t.shape for t in inputs]} if numbers else {}
            body, _, _ = kernel(name, list(block.arguments), arguments, results, **shapes, loc=loc, ip=ip)
            inside = ir.InsertionPoint(body)
            settings = case.causal, case.q_offset, case.scale, -math.inf
            values = write_attention(
                kind, list(body.arguments), made_types, maps, *settings, loc=loc, ip=inside
            )
            yield_values(values, loc=loc, ip=inside)
            with ip:
                func.ReturnOp([])
            outputs[name] = [(t.shape, t.dtype) for t in results]
        assert module.operation.verify()
    return module, outputs


def in_f64(case: Case, given: dict[str, Tensor], mask: Tensor | None = None) -> dict[str, Tensor]:
    """out, lse, dq, dk and dv in f64, by softmax and autograd."""
    wide = {role: case.ordered(x).double().requires_grad_() for role, x in given.items()}
    group = case.heads // case.kv_heads
    keys, values = (wide[role].repeat_interleave(group, 1) for role in "kv")
    scores = wide["q"] @ keys.mT * case.scale
    seen = torch.ones(case.queries, case.keys, dtype=torch.bool)
    seen = seen.tril(case.q_offset + case.place) if case.causal else seen
    if mask is not None and mask.dtype == torch.bool:
        seen = seen & mask
    elif mask is not None:
        scores = scores + mask.double()
    scores = scores.masked_fill(~seen, -math.inf)
    dead = (scores == -math.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(dead, 0).softmax(-1).masked_fill(dead, 0)
    out = weights @ values
    dq, dk, dv = torch.autograd.grad(out, [wide[r] for r in "qkv"], wide["grad_out"])
    return {"out": out.detach(), "lse": scores.logsumexp(-1).detach(), "dq": dq, "dk": dk, "dv": dv}
