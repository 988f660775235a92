"""Matmuls and attention at sizes that fill a GPU, compiled ahead of time: matrix instructions, no spills,
shared memory within limits.

Tiles are those that the models of costs choose, so that this also holds the closed forms of what is legal to
what Triton makes.
"""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.backends.triton.aot.compile import Compiled, compile_kernels
from shardc.backends.triton.emit.emitted import Emitted
from shardc.cost.machine import GPUS
from shardc.frontend.graph.aot_graph import import_graph
from shardc.passes.fuse.grouping.capabilities import ALL
from shardc.passes.fuse.kern_fuse import fuse_module

from .contractions import Body, Case, T, emitted, emitted_attention
from .contracts import priced, violations
from .programs import emitted as emitted_kernels
from .test_matmuls import dot

pytest.importorskip("triton", reason="Triton is not installed")

BF16 = "%r = arith.truncf %0 : f32 to bf16"


def linear(name: str, m: int, n: int, k: int) -> Body:
    """gelu's kin: relu(x @ w^T + b) in bf16."""
    body = Body(name)
    x, w, b = body.argument((m, k), "bf16"), body.argument((n, k), "bf16"), body.argument((n,), "bf16")
    total = dot(body, x, w, (m, n, k), ("d0, d2", "d1, d2"))
    code = """%w = arith.extf %1 : bf16 to f32
        %s = arith.addf %0, %w : f32
        %z = arith.constant 0.0 : f32
        %t = arith.maximumf %s, %z : f32
        %r = arith.truncf %t : f32 to bf16"""
    body.results = [body.map([total, (b, "d1")], code, "bf16")]
    return body


def plain(name: str, m: int, n: int, k: int, element: str) -> Body:
    body = Body(name)
    x, y = body.argument((m, k), element), body.argument((k, n), element)
    body.results = [dot(body, x, y, (m, n, k), ("d0, d2", "d2, d1"))]
    return body


def normed(name: str, m: int, n: int, k: int) -> Body:
    """A norm's scale before the product, computed in f32 in the tile."""
    body = Body(name)
    x, scale, w = body.argument((m, k), "bf16"), body.argument((m,)), body.argument((k, n), "bf16")
    code = (
        "%w = arith.extf %0 : bf16 to f32\n%s = arith.mulf %w, %1 : f32\n%r = arith.truncf %s : f32 to bf16"
    )
    normal: T = body.map([x, (scale, "d0")], code, "bf16")
    total = dot(body, normal, w, (m, n, k), ("d0, d2", "d2, d1"))
    body.results = [body.map([total], BF16, "bf16")]
    return body


def batched(name: str, count: int, m: int, n: int, k: int) -> Body:
    body = Body(name)
    x, y = body.argument((count, m, k), "f16"), body.argument((count, k, n), "f16")
    body.results = [dot(body, x, y, (count, m, n, k), ("d0, d1, d3", "d0, d3, d2"), (3,))]
    return body


def matmuls(target: str) -> list[Emitted]:
    bodies = [
        linear("square", 4096, 4096, 4096),
        linear("ragged", 1000, 777, 333),
        linear("few_rows", 16, 4096, 4096),
        normed("normed", 2048, 4096, 1024),
        batched("batched", 64, 512, 512, 64),
    ]
    return [
        *(emitted(body, target) for body in bodies),
        emitted(plain("tf32", 1024, 1024, 1024, "f32"), target, tf32=True),
    ]


def attentions(target: str) -> list[Emitted]:
    case = Case(2, 8, 2, 1024, 1024, 128, 128, torch.bfloat16, causal=True, heads_last=True)
    long, _ = emitted_attention(case, target=target)
    padded = Case(2, 8, 8, 1000, 1000, 80, 80, torch.float16, heads_last=True)
    mask = torch.ones(2, 1, 1, 1000, dtype=torch.bool)
    odd, _ = emitted_attention(padded, mask, target=target)
    _, gradient = emitted_attention(replace(case, size=64, value_size=64), target=target)
    wide = Case(3, 6, 2, 257, 257, 54, 54, torch.float32, causal=True, heads_last=True)
    _, tf32 = emitted_attention(wide, target=target, tf32=True)
    return [replace(long, name="long"), replace(odd, name="odd"), gradient, replace(tf32, name="tf32")]


def held_to(compiled: Compiled) -> None:
    """The contract of a kernel's main functions; those that join or sum up first have no products."""
    assert compiled.error is None
    for figures in compiled.functions:
        assert figures.shared_bytes <= compiled.target.shared_bytes, figures
        assert figures.spill_bytes <= ALLOWED_BYTES, figures
        without = figures.name.endswith(("_join", "_delta", "_seen_keys", "_seen_queries"))
        assert (figures.matrix_ops > 0) != without, figures


ALLOWED_BYTES = 16
"""Of a thread's stack: ptxas keeps a barrier's state there in some kernels, without a spill."""


@pytest.mark.slow
@pytest.mark.parametrize("target", GPUS)
def test_matmuls(target, tmp_path):
    for compiled in compile_kernels(matmuls(target), [GPUS[target]], tmp_path, processes=1):
        held_to(compiled)


def silu_gate(x, w, gate):
    return F.silu(x @ w) * gate


@pytest.mark.slow
def test_spills_that_are_priced_are_those_that_there_are(tmp_path):
    """Large tiles whose epilogue spills, chosen at their price: what compilers spill is some, and within its
    bound. On sm_90 and gfx942 tiles that do not spill are chosen, since the model knows an H200.
    """
    m, n, k, target = 2048, 2048, 2048, "sm_100"
    x, w, y = (torch.empty(s, dtype=torch.bfloat16, device="meta") for s in ((m, k), (k, n), (m, n)))
    module = import_graph(make_fx(lambda *t: [silu_gate(*t)], tracing_mode="fake")(x, w, y), "forward").module
    fuse_module(module, matmuls="generated", capabilities=ALL)
    (kernel,) = emitted_kernels(module, GPUS[target])
    (compiled,) = compile_kernels([kernel], [GPUS[target]], tmp_path, processes=1)
    assert compiled.error is None and not any(violations(compiled, whole=True).values())
    (figures,) = compiled.functions
    assert priced(compiled) > 0 and figures.spill_bytes > ALLOWED_BYTES, figures


@pytest.mark.slow
@pytest.mark.parametrize("target", GPUS)
def test_attention(target, tmp_path):
    for compiled in compile_kernels(attentions(target), [GPUS[target]], tmp_path, processes=1):
        held_to(compiled)


@pytest.mark.slow
def test_a_target_of_less_shared_memory_has_another_configuration(monkeypatch, tmp_path):
    """What would not fit is not chosen: smaller tiles, or fewer stages, which compile within the limit."""
    small = replace(GPUS["sm_90"], shared_bytes=64 << 10)
    monkeypatch.setitem(GPUS, "small", small)
    whole, found = (emitted(linear("square", 4096, 4096, 4096), target) for target in ("sm_90", "small"))
    assert whole.functions[0].constants != found.functions[0].constants or whole.text != found.text
    (compiled,) = compile_kernels([found], [small], tmp_path, processes=1)
    held_to(compiled)
