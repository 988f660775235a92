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


ALONE: dict[str, Function] = {
    **{name: f for name, f in more.ACTIVATIONS.items() if name != "nan to num"},
    "round": lambda x, y: torch.round(x),
    "remainder": lambda x, y: torch.remainder(x, 0.7),
    "fmod": lambda x, y: torch.fmod(x, 0.7),
    "sign": lambda x, y: torch.sign(x),
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
    options.add_argument("--functions", nargs="*", default=list(ALONE), choices=list(ALONE))
    options.add_argument("--repeats", type=int, default=31)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(512, 1024), torch.randn(512, 1024)
    rows = []
    for name in chosen.functions:
        function = ALONE[name]
        kernel = kernel_of(function, x, y)
        if kernel is None:
            rows.append([name, "no kernel", "", ""])
            continue
        calls = {"ours": kernel, "ATen": lambda function=function: function(x, y)}
        seconds = measure(calls, chosen.repeats, time.thread_time)
        rows.append([name, *(1e3 * seconds[c] for c in calls), seconds["ours"] / seconds["ATen"]])
    print(heading("Calls alone"))
    print(table(["call", "ours ms", "ATen ms", "ours / ATen"], rows))


if __name__ == "__main__":
    main()
