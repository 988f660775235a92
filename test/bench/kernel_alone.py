"""Calls of ATen ops alone: a kernel that is one call against ATen's own, on one thread, 512 x 1024 f32.

    python test/bench/kernel_alone.py                # which names belong to ALONE of passes/fuse/lower/table

The sizes are those of :data:`shardc.passes.fuse.lower.table.ALONE`; medians of interleaved rounds, in the
thread's own CPU time. ``ours / ATen`` is the time of the kernel over ATen's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from cpu_kernels import measure
from machine import heading, table
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.backends.cpu.compile import build_library
from shardc.backends.torch.emit_graph import emit_graph
from shardc.dynamo.program import load
from shardc.frontend.graph.aot_graph import import_graph
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.runtime.kernels.library import Library

sys.path.append(str(Path(__file__).parents[1] / "unit" / "passes" / "fuse"))
import more_functions as more

aten = torch.ops.aten
PIXELS = (8, 16, 64, 64)
VOXELS, HALVED = (8, 4, 16, 32, 32), (8, 4, 8, 16, 16)
WINDOW = ([2, 2, 2], [2, 2, 2], [0, 0, 0])
Function = Callable[..., Any]


UNARY = (
    "abs ceil cos erf exp2 expm1 floor frac isnan nan_to_num neg reciprocal relu round sgn sign sin square "
    "tril triu trunc"
)
OF_POSITIVE = "log log1p log2 rsqrt sqrt"
BINARY = "add div eq floor_divide lt maximum minimum mul sub"
SCALAR = "clamp_max clamp_min fmod pow remainder rsub xlogy"
GRADIENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("gelu", "hardsigmoid", "hardswish", "sigmoid", "silu", "tanh"), ()),
    **{"hardshrink": (0.5,), "softshrink": (0.5,), "hardtanh": (-1, 1), "leaky_relu": (0.1, False)},
    "threshold": (0.0,),
}
"""Functions whose gradient is a call of its own, and what it takes after the result's gradient and x."""


def _of_x(owner: Any, name: str, *rest: Any) -> Function:
    return lambda x, y: getattr(owner, name)(x, *rest)


def _of_both(owner: Any, name: str, *rest: Any) -> Function:
    return lambda x, y: getattr(owner, name)(x, y, *rest)


ALONE: dict[str, Function] = {
    **{name: f for name, f in more.ACTIVATIONS.items() if name != "nan to num"},
    **{name: _of_x(torch, name) for name in f"{UNARY} {OF_POSITIVE}".split()},
    **{name: _of_both(torch, name) for name in BINARY.split()},
    **{name: _of_x(torch, name, 0.7) for name in SCALAR.split()},
    **{f"{name} backward": _of_both(aten, f"{name}_backward", *rest) for name, rest in GRADIENTS.items()},
    "gelu tanh": lambda x, y: F.gelu(x, approximate="tanh"),
    "gelu tanh backward": lambda x, y: aten.gelu_backward(x, y, approximate="tanh"),
    "cross": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    "softmax backward": lambda x, y: aten._softmax_backward_data(x, y, -1, torch.float32),
    "log softmax backward": lambda x, y: aten._log_softmax_backward_data(x, y, -1, torch.float32),
    "amax": lambda x, y: x.amax(-1),
    "amax rows": lambda x, y: x.amax(0),
    "mean": lambda x, y: x.mean(),
    "largest": lambda x, y: x.max(),
    "all": lambda x, y: (x > 0).all(),
    "norm of all": lambda x, y: x.norm(),
    "lerp": lambda x, y: x.lerp(y, 0.3),
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "transposed copy": lambda x, y: x.t().contiguous(),
    "to bf16": lambda x, y: x.bfloat16(),
    "replication": lambda x, y: F.pad(x.view(PIXELS), (2, 2, 2, 2), mode="replicate"),
    "mse": F.mse_loss,
    "mse backward": lambda x, y: aten.mse_loss_backward(x.view(-1)[0], x, y, 1),
    "smooth l1": F.smooth_l1_loss,
    "smooth l1 backward": lambda x, y: aten.smooth_l1_loss_backward(x.view(-1)[0], x, y, 1, 1.0),
    "huber": F.huber_loss,
    "huber backward": lambda x, y: aten.huber_loss_backward(x.view(-1)[0], x, y, 1, 1.0),
    "with logits": F.binary_cross_entropy_with_logits,
    "soft margin": F.soft_margin_loss,
    "sum": lambda x, y: x.sum(),
    "logsumexp": lambda x, y: torch.logsumexp(x, -1),
    "max": lambda x, y: x.max(-1),
    "argmax": lambda x, y: x.argmax(-1),
    "any": lambda x, y: x.any(-1),
    "product": lambda x, y: x.prod(-1),
    "norm": lambda x, y: x.norm(dim=-1),
    "flip": lambda x, y: torch.flip(x, (-1,)),
    "flip rows": lambda x, y: torch.flip(x, (0,)),
    "roll rows": lambda x, y: torch.roll(x, 7, 0),
    "pad": lambda x, y: F.pad(x, (1, 1, 1, 1)),
    "reflection": lambda x, y: F.pad(x.view(PIXELS), (2, 2, 2, 2), mode="reflect"),
    "pixel shuffle": lambda x, y: F.pixel_shuffle(x.view(PIXELS), 2),
    "pixel unshuffle": lambda x, y: F.pixel_unshuffle(x.view(PIXELS), 2),
    "repeat": lambda x, y: x.repeat(2, 2),
    "max pool": lambda x, y: F.max_pool2d(x.view(PIXELS), 3, 2, 1),
    "max pool 2": lambda x, y: F.max_pool2d(x.view(PIXELS), 2),
    "max pool 3d": lambda x, y: F.max_pool3d(x.view(VOXELS), 2),
    "max pool 3d, 3 by 2": lambda x, y: F.max_pool3d(x.view(VOXELS), 3, 2, 1),
    "average pool 3d": lambda x, y: F.avg_pool3d(x.view(VOXELS), 2),
    "average pool 3d, 3 by 2": lambda x, y: F.avg_pool3d(x.view(VOXELS), 3, 2, 1),
    "average pool 3d backward": lambda x, y: aten.avg_pool3d_backward(
        x[:64].view(HALVED), x.view(VOXELS), *WINDOW, False, True, None
    ),
    "adaptive pool": lambda x, y: aten._adaptive_avg_pool2d(x.view(PIXELS), [16, 16]),
    "average pool": lambda x, y: F.avg_pool2d(x.view(PIXELS), 3, 2, 1),
}

FOUND = 1 << 16
"""Elements that a read at indices finds."""


def _reads(width: int) -> dict[str, Function]:
    """Return reads of rows of ``width`` elements at i64 indices."""
    return {
        f"embedding, {width}": lambda x, i: F.embedding(i[: FOUND // width], x.view(-1, width)),
        f"index, {width}": lambda x, i: x.view(-1, width)[i[: FOUND // width]],
        f"index_select, {width}": lambda x, i: x.view(-1, width).index_select(0, i[: FOUND // width]),
        f"index in the middle, {width}": lambda x, i: x.view(4, -1, width)[:, i[: FOUND // width // 4]],
        f"gather, {width}": lambda x, i: x.view(-1, width).gather(0, i.view(-1, width)),
        f"gather in rows, {width}": lambda x, i: x[:, :256].gather(1, i.view(512, -1)),
        f"two indices, {width}": lambda x, i: x.view(2, -1, width)[
            i[: FOUND // width] % 2, i[: FOUND // width]
        ],
    }


READS = {name: function for width in (1, 4, 8, 16, 64, 512) for name, function in _reads(width).items()}
"""Functions whose second argument is a tensor of indices below 256."""
CALLS = {**ALONE, **READS}


def kernel_of(function: Function, *tensors: Tensor) -> Callable[[], object] | None:
    """What runs ``function`` as kernels alone; None where a call stays."""

    def flat(*args: Tensor) -> list[Tensor]:
        made = function(*args)
        return [made] if isinstance(made, Tensor) else list(made)

    module = import_graph(make_fx(flat, tracing_mode="fake")(*tensors), "forward").module
    fuse_module(module, lone=True)
    if str(module).count('"kern.kernel"') != 1:
        return None
    with torch.device("meta"):
        count = len(flat(*(t.to("meta") for t in tensors)))
    run = load(emit_graph(module, list(range(count))), Library(build_library(module)))
    place = SimpleNamespace(device=torch.device("cpu"))
    return lambda: run(place, list(tensors))


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--functions", nargs="*", default=list(CALLS), choices=list(CALLS), metavar="NAME")
    options.add_argument("--repeats", type=int, default=31)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    normal, y = torch.randn(512, 1024), torch.randn(512, 1024)
    places = torch.randint(256, (FOUND,))
    rows = []
    for name in chosen.functions:
        function, other = CALLS[name], places if name in READS else y
        x = normal.abs() if name in OF_POSITIVE.split() else normal
        kernel = kernel_of(function, x, other)
        if kernel is None:
            rows.append([name, "no kernel", "", ""])
            continue
        calls = {"ours": kernel, "ATen": lambda function=function, x=x, other=other: function(x, other)}
        seconds = measure(calls, chosen.repeats, time.thread_time)
        rows.append([name, *(1e3 * seconds[c] for c in calls), seconds["ours"] / seconds["ATen"]])
    print(heading("Calls alone"))
    print(table(["call", "ours ms", "ATen ms", "ours / ATen"], rows))


if __name__ == "__main__":
    main()
