"""The kernels that the tuner's benchmarks search: 20 tasks as torch.compile makes them, and others to learn
from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from shardc.backends.tuning.task import Task
from shardc.commands.tune import jobs_of_function

F32, BF16 = torch.float32, torch.bfloat16


@dataclass(frozen=True)
class Named:
    """A function and what it is called with; ``backward``: the kernel of interest is in its backward."""

    name: str
    function: Callable[..., Any]
    arguments: Callable[[], tuple[torch.Tensor, ...]]
    backward: bool = False

    def task(self) -> Task:
        """Its largest kernel."""
        torch._dynamo.reset()
        arguments = self.arguments()
        if self.backward:
            arguments = tuple(a.requires_grad_() if a.is_floating_point() else a for a in arguments)
        jobs = jobs_of_function(self.function, *arguments, options={"matmuls": "generated"})
        jobs = jobs[1:] if self.backward and len(jobs) > 1 else jobs
        return max((job.task for job in jobs), key=lambda task: _weight(task.text))


def _weight(text: str) -> int:
    """Kernels with more in them are the ones that were meant."""
    return text.count("kern.attention") * 1000 + text.count("linalg.generic")


def matmul(m: int, k: int, n: int, dtype: torch.dtype, after: str, transposed: bool = True) -> Named:
    """x [m, k] times w [n, k] transposed (else w [k, n]), plus a bias, through an activation."""
    acts = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu, "residual": None}
    act = acts[after]

    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if act is None:
            return (F.linear(x, w) if transposed else x @ w) + b
        return act(F.linear(x, w, b) if transposed else x @ w + b)

    def made() -> tuple[torch.Tensor, ...]:
        shapes = (m, k), (n, k) if transposed else (k, n), (m, n) if after == "residual" else (n,)
        return tuple(torch.randn(s).to(dtype) for s in shapes)

    return Named(f"matmul {m}x{k}x{n} {_name(dtype)} {after}", function, made)


def rows(kind: str, m: int, n: int, dtype: torch.dtype) -> Named:
    """Softmax, norms and the like over rows of ``n``; ``columns`` sums over ``m``, ``turned`` reads across
    its rows.
    """
    functions: dict[str, Callable[..., Any]] = {
        "softmax": lambda x: F.softmax(x * 0.5, -1),
        "layernorm": lambda x, w, b: F.layer_norm(x, (n,), w, b),
        "rmsnorm": lambda x, w, b: F.rms_norm(x, (n,), w),
        "columns": lambda x: (x * x).sum(0),
        "gelu": lambda x: F.gelu(x) * x,
        "log_softmax": lambda x: F.log_softmax(x, -1),
        "turned": lambda x: F.gelu(x) * x.reshape(n, m).t(),
    }
    vectors = 2 if kind in ("layernorm", "rmsnorm") else 0

    def function(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return functions[kind](x, *rest)

    made = lambda: (torch.randn(m, n).to(dtype), *(torch.randn(n).to(dtype) for _ in range(vectors)))  # noqa: E731
    return Named(f"{kind} {m}x{n} {_name(dtype)}", function, made)


def norm_backward(m: int, n: int, dtype: torch.dtype) -> Named:
    """Gradients of a layer norm: sums over rows and over columns."""
    forward = rows("layernorm", m, n, dtype)
    return Named(
        f"layernorm backward {m}x{n} {_name(dtype)}", forward.function, forward.arguments, backward=True
    )


def attention(
    heads: int, length: int, size: int, dtype: torch.dtype, causal: bool, backward: bool = False
) -> Named:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    made = lambda: tuple(torch.randn(1, heads, length, size).to(dtype) for _ in range(3))  # noqa: E731
    kind = (
        f"attention{' backward' if backward else ''} {heads}x{length}x{size} "
        f"{_name(dtype)}{' causal' if causal else ''}"
    )
    return Named(kind, function, made, backward)


def _name(dtype: torch.dtype) -> str:
    return "f32" if dtype == F32 else "bf16"


TASKS = [
    matmul(128, 128, 128, F32, "gelu"),
    rows("softmax", 1024, 1024, F32),
    matmul(512, 512, 512, F32, "relu"),
    attention(8, 512, 64, F32, causal=False),
    rows("layernorm", 2048, 768, F32),
    matmul(256, 512, 1024, BF16, "gelu"),
    rows("columns", 4096, 512, F32),
    norm_backward(1024, 768, F32),
    matmul(64, 2048, 512, F32, "relu"),
    attention(4, 1024, 64, F32, causal=True),
    rows("rmsnorm", 1024, 2048, BF16),
    matmul(512, 512, 1376, F32, "silu"),
    rows("softmax", 4096, 256, BF16),
    matmul(1024, 256, 1024, BF16, "residual"),
    attention(8, 512, 64, F32, causal=True, backward=True),
    rows("columns", 2048, 1024, BF16),
    matmul(256, 1024, 512, F32, "residual"),
    rows("log_softmax", 512, 8192, F32),
    matmul(1024, 1024, 1024, F32, "relu"),
    rows("rmsnorm", 4096, 512, F32),
]
"""Of the quality benchmark: none of them is in what the shipped cost model was trained on."""

OTHERS = [
    *(
        matmul(m, k, n, dtype, after)
        for m, k, n, dtype, after in (
            (192, 192, 192, F32, "relu"),
            (384, 768, 384, F32, "gelu"),
            (320, 640, 960, BF16, "silu"),
            (96, 1536, 768, F32, "relu"),
            (768, 384, 1024, F32, "silu"),
            (640, 256, 640, BF16, "residual"),
            (128, 768, 768, F32, "residual"),
            (896, 896, 896, F32, "relu"),
            (160, 160, 320, F32, "gelu"),
            (512, 1024, 256, BF16, "gelu"),
            (32, 1024, 1024, F32, "relu"),
            (640, 512, 1152, F32, "silu"),
            (1280, 320, 768, BF16, "residual"),
            (384, 1536, 256, F32, "residual"),
            (1536, 768, 768, F32, "gelu"),
            (192, 384, 768, BF16, "gelu"),
        )
    ),
    *(
        rows(kind, m, n, dtype)
        for kind, dtype, shapes in (
            (
                "softmax",
                F32,
                ((2048, 512), (512, 1024), (1024, 2048), (4096, 1024), (256, 4096), (8192, 256)),
            ),
            ("softmax", BF16, ((1024, 768), (2048, 2048), (512, 4096), (8192, 512))),
            ("layernorm", F32, ((1024, 1536), (512, 1024), (4096, 512), (2048, 2048), (8192, 256))),
            ("layernorm", BF16, ((1024, 1024), (4096, 768))),
            ("rmsnorm", F32, ((8192, 256), (2048, 1024), (512, 4096), (1024, 512))),
            ("rmsnorm", BF16, ((2048, 1024), (512, 2048), (8192, 512), (1024, 4096))),
            ("log_softmax", F32, ((1024, 4096), (256, 16384), (2048, 1024), (768, 6144))),
            ("log_softmax", BF16, ((1024, 8192),)),
            ("columns", F32, ((8192, 256), (2048, 512), (1024, 1024), (512, 4096))),
            ("columns", BF16, ((4096, 768), (1024, 2048), (8192, 384))),
            ("turned", F32, ((1024, 1024), (2048, 512))),
        )
        for m, n in shapes
    ),
    *(norm_backward(m, n, F32) for m, n in ((2048, 512), (512, 1024), (1024, 1536), (4096, 256))),
    norm_backward(1024, 512, BF16),
    attention(4, 384, 64, F32, causal=False),
    attention(8, 768, 32, F32, causal=True),
    attention(2, 1024, 64, F32, causal=False),
    attention(16, 256, 64, F32, causal=True),
    attention(4, 512, 128, F32, causal=True),
    attention(6, 512, 64, BF16, causal=False),
    attention(4, 768, 64, F32, causal=True, backward=True),
    attention(8, 384, 32, F32, causal=True, backward=True),
    attention(2, 1024, 64, F32, causal=False, backward=True),
]
"""To train the shipped cost model on."""
