"""Triton module of a kernel whose body is one ``kern.attention`` or ``kern.attention_backward``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import torch
from torch_mlir import ir

from shardc.backends.body.handlers import handles
from shardc.backends.body.structured import Structured
from shardc.backends.triton.attention import backward as attention_backward
from shardc.backends.triton.attention import forward as attention_forward
from shardc.backends.triton.attention import ranges as attention_ranges
from shardc.backends.triton.attention.shared import Writer, padded
from shardc.backends.triton.emit.emitted import Emitted
from shardc.backends.triton.emit.memory import Memory, Pointer, Work
from shardc.backends.triton.emit.module import Module, Part
from shardc.backends.triton.emit.names import Said
from shardc.backends.triton.emit.text import size_text
from shardc.cost.attention import Blocks, Scores, choose, estimate_s
from shardc.cost.attention import blocks as blocks_of
from shardc.cost.kernel import stream_s
from shardc.cost.machine import Gpu
from shardc.diagnostics.triton import TritonKernelNotSupported
from shardc.dialects.kern.attention import AttentionOp
from shardc.dialects.kern.attention_backward import AttentionBackwardOp
from shardc.dialects.kern.attention_maps import Attention, read_attention
from shardc.dialects.kern.size import AnySize, hint
from shardc.dialects.kern.types import ELEMENTS

FORWARD, BACKWARD = AttentionOp.OPERATION_NAME, AttentionBackwardOp.OPERATION_NAME
_ROLES = {
    FORWARD: (("q", "k", "v", "mask"), ("out", "lse")),
    BACKWARD: (("grad_out", "q", "k", "v", "out", "lse", "mask"), ("dq", "dk", "dv")),
}


@handles(AttentionOp, AttentionBackwardOp)
def emit_attention(body: Structured, said: Said, target: Gpu, *, tf32: bool = False) -> Emitted:
    """Return the module of a kernel. Raises TritonKernelNotSupported if no tile fits."""
    op, shapes, symbols, config = body.op, body.shapes, body.symbols, body.config
    forward = op.name == FORWARD
    spec = read_attention(op, shapes)
    if spec.has_place:
        raise TritonKernelNotSupported(what="attention of rows whose position is known only at run time")
    memory = _memory(op, spec, [f"n{s.number}" for s in symbols])
    names = {s: name for s, name in zip(symbols, memory.sizes, strict=True)}
    kinds = ("forward",) if forward else ("dkdv", "dq")
    blocks = {kind: _blocks(kind, spec, target, config, tf32) for kind in kinds}
    writer = Writer(said.name, spec, names, tf32, _has_ranges(spec, blocks))
    module = Module(said.name, said.title, memory)
    module.sizes = writer.constants()
    if not forward:
        sizes = spec.sizes
        memory.works.append(Work(Pointer("delta", "delta", "f32"), sizes["b"] * sizes["h"] * sizes["m"]))
        module.parts.append(_delta(writer, target))
    for kind in kinds:
        if writer.ranges:
            module.parts.append(_ranges(writer, _KINDS[kind][2], blocks[kind], memory, target))
    module.helpers = [_KINDS[kind][0](writer) for kind in kinds]
    for kind in kinds:
        seconds = estimate_s(blocks[kind], scores_of(kind, spec, tf32), target)
        module.parts.append(replace(_part(writer, kind, blocks[kind]), seconds=seconds))
    _estimate(module, spec, target, tf32)
    return module.finish("attention")


def _estimate(module: Module, spec: Attention, target: Gpu, tf32: bool) -> None:
    forward = scores_of("forward", spec, tf32)
    flops = forward.flops if "grad_out" not in spec.tensors else 5 * forward.flops // 2
    moved = sum(hint(t.type.size_bytes) for t in spec.tensors.values())
    module.estimated(flops, forward.flop_s(target), moved, target)


def _memory(op: ir.Operation, spec: Attention, sizes: list[str]) -> Memory:
    """Return the module's parameters, named by their roles."""
    given, made = ([r for r in roles if r in spec.tensors] for roles in _ROLES[op.name])
    pointers = {r: Pointer(r, r, ELEMENTS[spec.tensors[r].type.dtype]) for r in (*given, *made)}
    return Memory([pointers[r] for r in given], [pointers[r] for r in made], sizes)


def scores_of(kind: str, spec: Attention, tf32: bool) -> Scores:
    """Return the cost model's description of one kernel of an attention, at the sizes first seen."""
    b, h, m, n = (hint(spec.sizes[d]) for d in "bhmn")
    dtype = spec.tensors["q"].type.dtype
    heads = spec.kv_heads if kind == "dkdv" else h
    matrix = dtype != torch.float32 or tf32
    size, value_size = padded(spec.sizes["d"]), padded(spec.sizes["e"])
    return Scores(
        kind, b * h, b * heads, m, n, size, value_size, dtype.itemsize, 0.5 if spec.causal else 1.0, matrix
    )


def _blocks(kind: str, spec: Attention, target: Gpu, config: Mapping[str, int], tf32: bool) -> Blocks:
    scores = scores_of(kind, spec, tf32)
    if not blocks_of(scores, target):
        heads = f"heads of size {spec.sizes['d']} and {spec.sizes['e']}"
        raise TritonKernelNotSupported(what=f"attention with {heads}")
    names = ("queries", "keys", "warps", "stages")
    asked = {name: config[f"{kind}_{name}"] for name in names if f"{kind}_{name}" in config}
    return replace(choose(scores, target), **asked)


def _has_ranges(spec: Attention, blocks: Mapping[str, Blocks]) -> bool:
    """Return True if reading the mask's ranges first is worth its cost."""
    masks_keys = "mask" in spec.tensors and "n" in spec.tensors["mask"].order
    return masks_keys and any(
        hint(spec.sizes["n"]) > (attention_ranges.LEAST - 1) * b.keys for b in blocks.values()
    )


def _ranges(w: Writer, own: str, blocks: Blocks, memory: Memory, target: Gpu) -> Part:
    name, counted = attention_ranges.WORK[own], attention_ranges.count(w, own)
    constants = {"BLOCK_M": blocks.queries, "BLOCK_N": blocks.keys}
    sizes = {d: size_text(w.spec.sizes[d], list(w.symbols.values())) for d in counted}
    block = attention_ranges.BLOCKS[own]
    parts = [f"triton.cdiv({n}, {block})" if d == own else f"({n})" for d, n in sizes.items()]
    least = {"m": blocks.queries, "n": blocks.keys}[own]
    entries = 2 * prod(w.spec.sizes[d] + (least if d == own else 0) for d in counted)
    memory.works.append(Work(Pointer(name, name, "i32"), entries))
    grid = f"({' * '.join(parts) or '1'},)"
    seconds = stream_s(hint(w.spec.tensors["mask"].type.size_bytes), hint(entries) // (2 * least), 4, target)
    body = attention_ranges.body(w, own)
    return Part(f"{w.name}_{name}", body, constants, grid, 4, _SAYS[name], 2, seconds)


def _part(w: Writer, kind: str, blocks: Blocks) -> Part:
    constants = {"BLOCK_M": blocks.queries, "BLOCK_N": blocks.keys}
    constants |= {"BLOCK_D": padded(w.size("d")), "BLOCK_E": padded(w.size("e"))}
    _, body, own = _KINDS[kind]
    grid = _grid(w, own, w.spec.kv_heads if kind == "dkdv" else w.size("h"))
    name = w.name if kind == "forward" else f"{w.name}_{kind}"
    return Part(name, body(w), constants, grid, blocks.warps, _SAYS[kind], blocks.stages)


_KINDS = {
    "forward": (attention_forward.step, attention_forward.main, "m"),
    "dkdv": (attention_backward.dkdv_rows, attention_backward.dkdv, "n"),
    "dq": (attention_backward.dq_keys, attention_backward.dq, "m"),
}
"""Kind -> functions that write the loop's step and the body, and the dim of which a program takes a block."""
_SAYS = {
    "forward": "A program: BLOCK_M queries of one head, past which the keys that they see go by in blocks "
    "of BLOCK_N.",
    "dkdv": "A program: dk and dv of BLOCK_N keys of one head, from the queries that see them, BLOCK_M at "
    "a time.",
    "dq": "A program: dq of BLOCK_M queries of one head, past which the keys that they see go by in blocks "
    "of BLOCK_N.",
    "seen_keys": "For a block of queries, the first of the keys that the mask shows to any of them, and "
    "the one behind the last.",
    "seen_queries": "For a block of keys, the first of the queries that see any of them, and the one "
    "behind the last.",
    "delta": "delta[batch, head, query] = sum of grad_out * out.",
}


def _delta(w: Writer, target: Gpu) -> Part:
    constants = {"BLOCK_M": 32, "BLOCK_E": padded(w.spec.sizes["e"])}
    grid = _grid(w, "m", w.spec.sizes["h"])
    rows = hint(prod(w.spec.sizes[d] for d in "bhm"))
    seconds = stream_s(2 * hint(w.spec.tensors["out"].type.size_bytes) + 4 * rows, -(-rows // 32), 4, target)
    body = attention_backward.delta(w)
    return Part(f"{w.name}_delta", body, constants, grid, 4, _SAYS["delta"], 1, seconds)


def _grid(w: Writer, own: str, heads: AnySize) -> str:
    names = list(w.symbols.values())
    batch, count = (size_text(n, names) for n in (prod((w.size("b"), heads)), w.size(own)))
    return f"(triton.cdiv({count}, {attention_ranges.BLOCKS[own]}) * {batch},)"
