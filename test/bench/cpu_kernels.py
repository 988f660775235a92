"""Fused CPU kernels against TorchInductor and eager PyTorch, in one process, interleaved.

    python test/bench/cpu_kernels.py                     # every kernel, three sizes, one thread and all of them
    python test/bench/cpu_kernels.py --kernels softmax adamw --sizes 2048x2048 --threads 1

Medians of ``--repeats`` rounds; a round calls each contender once. One thread is timed in CPU time of that thread, so that
other load on the machine counts little; several threads in wall time. Outputs are new tensors in every contender.
``of copy`` is the rate at which the kernel moves the bytes that it must move, over that of ``tensor.copy_`` of the same
size, timed in the same rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from machine import heading, table

sys.path.append(str(Path(__file__).parents[1] / "unit" / "cpu"))
import programs
from bodies import Body, compiled

Tensors = list[torch.Tensor]
ADAMW_SHAPES = [shape for _ in range(10) for shape in [(512, 512), (512,), (512,), (1376, 512), (512, 512)]]
"""50 parameters, 12.4 million elements, as in ten layers of a small Llama."""


def gelu_chain(x, w, b, r):
    return F.gelu(x * w + b) + r


def tanh_gelu_chain(x, w, b, r):
    return F.gelu(x * w + b, approximate="tanh") + r


def softmax(x):
    return torch.softmax(x, -1)


def softmax_backward(dy, y):
    return torch.ops.aten._softmax_backward_data(dy, y, -1, torch.float32)


def layer_norm(x, w, b):
    return torch.native_layer_norm(x, [x.shape[1]], w, b, 1e-5)


def layer_norm_backward(dy, x, mean, rstd, w):
    sizes = [x.shape[1]]
    return torch.ops.aten.native_layer_norm_backward(dy, x, sizes, mean[:, None], rstd[:, None], w, w, [True] * 3)


def rms_norm(x, w):
    rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    return x * rstd * w, rstd


def rms_norm_backward(dy, x, rstd, w):
    normal, g = x * rstd[:, None], dy * w
    return (g - normal * (g * normal).mean(-1, keepdim=True)) * rstd[:, None], (dy * normal).sum(0)


def adamw(step, *tensors):
    c1, c2 = 1 - 0.9**step, 1 - 0.999**step
    results = []
    for p, g, m, v in zip(*(tensors[i::4] for i in range(4)), strict=True):
        m = m + (g - m) * 0.1
        v = v * 0.999 + 0.001 * (g * g)
        results += [p * (1 - 1e-5) - m * (1e-3 / c1) / (v.sqrt() / c2.sqrt() + 1e-8), m, v]
    return results


def _wide(count: int, rows: int, columns: int) -> Tensors:
    return [torch.randn(rows, columns) for _ in range(count)]


def _case(name: str, rows: int, columns: int) -> tuple[Body, Callable, Tensors]:
    """The body, the same in PyTorch, and arguments."""
    if name == "adamw":
        state = [t for s in ADAMW_SHAPES for t in (torch.randn(s), torch.randn(s), torch.randn(s), torch.rand(s))]
        return programs.adamw(ADAMW_SHAPES), adamw, [torch.tensor(3.0), *state]
    w, b, mean, rstd = torch.randn(columns), torch.randn(columns), torch.randn(rows), torch.rand(rows) + 0.5
    x, y = _wide(2, rows, columns)
    arguments = {
        "gelu_chain": [x, w, b, y], "tanh_gelu_chain": [x, w, b, y], "softmax": [x], "softmax_backward": [x, y.softmax(-1)],
        "layer_norm": [x, w, b], "layer_norm_backward": [x, y, mean, rstd, w], "rms_norm": [x, w],
        "rms_norm_backward": [x, y, rstd, w],
    }  # fmt: skip
    return getattr(programs, name)(rows, columns), globals()[name], arguments[name]


KERNELS = [
    "gelu_chain", "tanh_gelu_chain", "softmax", "softmax_backward", "layer_norm", "layer_norm_backward", "rms_norm",
    "rms_norm_backward", "adamw",
]  # fmt: skip


def measure(contenders: dict[str, Callable], repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """Median seconds of each, interleaved; the first calls are not counted."""
    for call in contenders.values():
        call()
        call()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, call in contenders.items():
            start = clock()
            call()
            times[name].append(clock() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def compare(name: str, rows: int, columns: int, threads: int, repeats: int) -> list[object]:
    """One line of the table; raises if ours is not what eager gives."""
    torch.manual_seed(0)
    body, eager, arguments = _case(name, rows, columns)
    clock_start = time.perf_counter()
    ours = compiled(body)
    compile_ms = 1e3 * (time.perf_counter() - clock_start)
    torch._dynamo.reset()
    inductor = torch.compile(eager, dynamic=False)
    clock_start = time.perf_counter()
    inductor(*arguments)
    inductor_ms = 1e3 * (time.perf_counter() - clock_start)
    results = ours(*arguments)
    wanted = eager(*arguments)
    for got, exact in zip(results, wanted if isinstance(wanted, tuple | list) else [wanted], strict=False):
        scale = exact.abs().max().item()
        torch.testing.assert_close(got, exact.view(got.shape), rtol=1e-4, atol=1e-5 * max(1.0, scale))
    moved = sum(t.nbytes for t in [*arguments, *results])
    source = torch.randn(moved // 8)
    target = torch.empty_like(source)
    found = measure(
        {
            "ours": lambda: ours(*arguments), "inductor": lambda: inductor(*arguments),
            "eager": lambda: eager(*arguments), "copy": lambda: target.copy_(source),
        },
        repeats, time.thread_time if threads == 1 else time.perf_counter,
    )  # fmt: skip
    size = "50 tensors" if name == "adamw" else f"{rows}x{columns}"
    milliseconds = [1e3 * found[c] for c in ("ours", "inductor", "eager")]
    ratios = [found["ours"] / found["inductor"], found["ours"] / found["eager"], found["copy"] / found["ours"]]
    return [name, size, threads, *milliseconds, *ratios, moved / found["copy"] / 1e9, f"{compile_ms:.0f}", f"{inductor_ms:.0f}"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kernels", nargs="*", default=KERNELS, choices=KERNELS)
    options.add_argument("--sizes", nargs="*", default=["256x1024", "2048x2048", "8192x2048"])
    options.add_argument("--threads", nargs="*", type=int, default=[1, torch.get_num_threads()])
    options.add_argument("--repeats", type=int, default=15)
    chosen = options.parse_args()
    rows = []
    for name in chosen.kernels:
        for size in chosen.sizes if name != "adamw" else chosen.sizes[:1]:
            for threads in dict.fromkeys(chosen.threads):
                torch.set_num_threads(threads)
                with torch.no_grad():
                    row = compare(name, *map(int, size.split("x")), threads, chosen.repeats)
                print(" ".join(f"{c:.2f}" if isinstance(c, float) else str(c) for c in row), file=sys.stderr, flush=True)
                rows.append(row)
    columns = ["kernel", "size", "threads", "ours ms", "Inductor ms", "eager ms", "/ Inductor", "/ eager", "of copy",
               "copy GB/s", "compile ms", "Inductor compile ms"]  # fmt: skip
    print(heading("CPU kernels, f32"))
    print(table(columns, rows))


if __name__ == "__main__":
    main()
