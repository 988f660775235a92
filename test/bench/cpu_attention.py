"""Attention kernels against ATen's fused CPU kernel and TorchInductor, which calls it, in one process,
interleaved.

    python test/bench/cpu_attention.py                    # every shape in f32 and bf16, one thread and all of
    them python test/bench/cpu_attention.py --dtypes f32 --threads 1

Medians of ``--repeats`` rounds; one thread in CPU time of that thread, several in wall time. GFLOP/s counts
the products over scores that the mask leaves: two of them forward, five backward.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from cpu_kernels import measure
from machine import heading, table

sys.path.append(str(Path(__file__).parents[1] / "unit" / "backends" / "cpu"))
from attention_kernels import Case, compiled_attention

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
SHAPES = {
    "small, causal": (2, 8, 8, 128, 32, "causal"),
    "causal": (2, 8, 8, 512, 64, "causal"),
    "grouped, causal": (2, 8, 2, 512, 64, "causal"),
    "wide, causal": (1, 4, 4, 1024, 128, "causal"),
    "full": (4, 12, 12, 128, 64, "none"),
    "long, full": (1, 8, 8, 2048, 64, "none"),
    "window of 128": (2, 8, 8, 512, 64, "window"),
    "padding": (2, 8, 8, 512, 64, "padding"),
}
"""Batch, heads, heads of keys, length, size, mask."""


def mask_of(kind: str, batch: int, length: int) -> torch.Tensor | None:
    """A bool mask: a causal window of 128, or the last quarter of the keys hidden."""
    at = torch.arange(length)
    back = at[:, None] - at[None]
    if kind == "window":
        return ((back >= 0) & (back < 128))[None, None]
    return (at < length * 3 // 4).repeat(batch, 1)[:, None, None] if kind == "padding" else None


def compare(name: str, dtype: str, threads: int, repeats: int) -> list[list[object]]:
    """A line of the table for each direction; raises if ours is not what ATen gives."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    batch, heads, kv_heads, length, size, kind = SHAPES[name]
    case = Case(batch, heads, kv_heads, length, length, size, size, DTYPES[dtype], causal=kind == "causal")
    mask = mask_of(kind, batch, length)
    start = time.perf_counter()
    forward, backward = compiled_attention(case, mask)
    compile_ms = 1e3 * (time.perf_counter() - start)
    given = case.tensors()
    q, k, v, grad = (given[role] for role in ("q", "k", "v", "grad_out"))
    masks = [] if mask is None else [mask]
    added = None if mask is None else torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -math.inf)

    def aten_forward(q, k, v):
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, case.causal, attn_mask=added
        )

    def aten_backward(grad, q, k, v, out, lse):
        op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        return op(grad, q, k, v, out, lse, 0.0, case.causal, attn_mask=added)

    out, lse = forward(q, k, v, *masks)
    aten_out, aten_lse = aten_forward(q, k, v)
    bound = 1e-5 if dtype == "f32" else 2e-2
    torch.testing.assert_close(out, aten_out, rtol=bound, atol=bound)
    ways = (
        ("forward", forward, aten_forward, (q, k, v), (q, k, v), 2),
        (
            "backward",
            backward,
            aten_backward,
            (grad, q, k, v, out, lse),
            (grad, q, k, v, aten_out, aten_lse),
            5,
        ),
    )
    seen = 0.5 if case.causal else 1.0 if mask is None else mask.float().mean().item()
    rows: list[list[object]] = []
    for way, ours, aten, ours_given, aten_given, products in ways:
        flop = products * 2 * batch * heads * length * length * size * seen
        found = measure(_contenders(ours, aten, (*ours_given, *masks), aten_given), repeats, _clock(threads))
        ours_s = found["ours"]
        milliseconds = [1e3 * found[c] for c in ("ours", "inductor", "aten")]
        ratios = [
            ours_s / found["inductor"],
            ours_s / found["aten"],
            flop / ours_s / 1e9,
            flop / found["aten"] / 1e9,
        ]
        rows.append([name, way, dtype, threads, *milliseconds, *ratios, f"{compile_ms:.0f}"])
    return rows


def _contenders(ours: Callable, aten: Callable, ours_given: tuple, aten_given: tuple) -> dict[str, Callable]:
    inductor = torch.compile(aten, dynamic=False)
    return {
        "ours": lambda: ours(*ours_given),
        "inductor": lambda: inductor(*aten_given),
        "aten": lambda: aten(*aten_given),
    }


def _clock(threads: int) -> Callable[[], float]:
    return time.thread_time if threads == 1 else time.perf_counter


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    options.add_argument("--dtypes", nargs="*", default=["f32", "bf16"], choices=list(DTYPES))
    options.add_argument("--threads", nargs="*", type=int, default=[1, torch.get_num_threads()])
    options.add_argument("--repeats", type=int, default=15)
    chosen = options.parse_args()
    rows: list[list[object]] = []
    for name in chosen.shapes:
        for dtype in chosen.dtypes:
            for threads in dict.fromkeys(chosen.threads):
                torch.set_num_threads(threads)
                with torch.no_grad():
                    found = compare(name, dtype, threads, chosen.repeats)
                for row in found:
                    print(
                        " ".join(f"{c:.2f}" if isinstance(c, float) else str(c) for c in row),
                        file=sys.stderr,
                        flush=True,
                    )
                rows += found
    columns = [
        "shape",
        "way",
        "dtype",
        "threads",
        "ours ms",
        "Inductor ms",
        "ATen ms",
        "/ Inductor",
        "/ ATen",
        "GFLOP/s",
        "ATen GFLOP/s",
        "compile ms",
    ]
    print(heading("Attention on CPUs"))
    print(table(columns, rows))


if __name__ == "__main__":
    main()
