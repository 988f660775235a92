"""What Triton kernels take of each GPU, compiled ahead of time: registers, spills, shared memory, and how they load and
store.

    python test/bench/triton_code.py [TARGET...]

Needs no GPU. A row is a function of a kernel; loads and stores are instructions, those of 16 bytes a thread first.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.backends.body.extract import kernel_name, kernels
from shardc.backends.triton.compile import compile_kernels
from shardc.backends.triton.emit import emit_kernel
from shardc.backends.triton.emitted import Emitted
from shardc.backends.triton.targets import TARGETS, Target, find_target
from shardc.frontend.aot_graph import import_graph
from shardc.passes.fuse.kern_fuse import fuse_module

aten = torch.ops.aten
ROWS, HIDDEN, CLASSES = 8192, 4096, 32000


def _tensor(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="meta")


def _adamw(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> list[Tensor]:
    m, v = m.lerp(g, 0.1), v * 0.999 + g * g * 0.001
    return [p - 0.001 * m / (v.sqrt() + 1e-8), m, v]


def _rms_norm(x: Tensor, w: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def _norm_backward(g: Tensor, x: Tensor, mean: Tensor, scale: Tensor, w: Tensor) -> Any:
    return aten.native_layer_norm_backward(g, x, [HIDDEN], mean, scale, w, w, [True] * 3)


CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "bias + gelu": (lambda x, b: F.gelu(x + b), (_tensor(ROWS, HIDDEN), _tensor(HIDDEN))),
    "swiglu": (lambda x, y: F.silu(x) * y, (_tensor(ROWS, HIDDEN), _tensor(ROWS, HIDDEN))),
    "softmax": (lambda x: torch.softmax(x, -1), (_tensor(ROWS, HIDDEN),)),
    "softmax, long rows": (lambda x: torch.softmax(x, -1), (_tensor(ROWS, CLASSES),)),
    "rms norm": (_rms_norm, (_tensor(ROWS, HIDDEN), _tensor(HIDDEN))),
    "layer norm": (lambda x, w, b: F.layer_norm(x, [HIDDEN], w, b), (_tensor(ROWS, HIDDEN), _tensor(HIDDEN), _tensor(HIDDEN))),
    "layer norm backward": (_norm_backward, (_tensor(ROWS, HIDDEN), _tensor(ROWS, HIDDEN), _tensor(ROWS, 1).float(), _tensor(ROWS, 1).float(), _tensor(HIDDEN))),
    "sum over rows": (lambda x: x.sum(0), (_tensor(ROWS, HIDDEN),)),
    "cross entropy": (lambda x, t: F.cross_entropy(x.float(), t), (_tensor(ROWS, CLASSES), torch.empty(ROWS, dtype=torch.int64, device="meta"))),
    "embedding backward": (lambda g, i: aten.embedding_dense_backward(g, i, CLASSES, -1, False), (_tensor(ROWS, HIDDEN), torch.empty(ROWS, dtype=torch.int64, device="meta"))),
    "AdamW": (_adamw, tuple(_tensor(HIDDEN, HIDDEN).float() for _ in range(4))),
}  # fmt: skip


def _emitted(function: Callable[..., Any], given: tuple[Tensor, ...], target: Target) -> list[Emitted]:
    def flat(*tensors: Tensor) -> list[Tensor]:
        made = function(*tensors)
        return [made] if isinstance(made, Tensor) else list(made)

    module = import_graph(make_fx(flat, tracing_mode="fake")(*given), "forward").module
    fuse_module(module, lone=True)
    return [emit_kernel(op, target) for op in {kernel_name(k): k for k in kernels(module)}.values()]


def main(names: list[str]) -> None:
    print("| kernel | target | function | warps | registers | spilled bytes | shared bytes | loads | stores |")
    print("|---|---|---|--:|--:|--:|--:|--:|--:|")
    for title, (function, given) in CASES.items():
        for target in map(find_target, names or TARGETS):
            with tempfile.TemporaryDirectory() as folder:
                for compiled in compile_kernels(_emitted(function, given, target), [target], Path(folder)):
                    if compiled.error is not None:
                        print(f"| {title} | {target.name} | {compiled.error} |")
                    for f in compiled.functions:
                        print(
                            f"| {title} | {target.name} | {f.name} | {f.num_warps} | {f.registers} | {f.spill_bytes} | "
                            f"{f.shared_bytes} | {f.wide_loads} of {f.loads} | {f.wide_stores} of {f.stores} |"
                        )


if __name__ == "__main__":
    main(sys.argv[1:])
