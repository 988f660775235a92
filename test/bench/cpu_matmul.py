"""Generated matmuls against oneDNN and MKL, linear layers with a gelu against TorchInductor: one process,
interleaved.

    python test/bench/cpu_matmul.py                            # both tables, one thread
    python test/bench/cpu_matmul.py --sizes 512x512x512 --threads 2

Sizes are m x k x n. Medians of ``--repeats`` rounds, of which each calls every contender once; one thread in
CPU time of that thread, several in wall time. Rates are GFLOP/s. Weights are [n, k], as those of a linear
layer; MKL's is torch.mm.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from types import FunctionType

import torch
import torch.nn.functional as F
from cpu_kernels import measure
from machine import heading, table

sys.path.append(str(Path(__file__).parents[1] / "unit" / "backends" / "cpu"))
from bodies import NAMES, Body, compiled

SIZES = ["512x512x512", "1024x1024x1024", "2048x512x2048", "256x1024x4096", "1024x4096x1024", "128x128x128"]
WAYS = ("auto", "generated", "extern")
"""What ``options={"matmuls": ...}`` can be."""
linear = torch.ops.mkldnn._linear_pointwise


def product(m: int, k: int, n: int, dtype: torch.dtype) -> Body:
    """x [m, k] times w [n, k] transposed, in f32, rounded to ``dtype``."""
    element = NAMES[dtype]
    body = Body("product")
    x, w = body.argument((m, k), element), body.argument((n, k), element)
    widen, terms = "", "%0, %1"
    if element != "f32":
        widen, terms = (
            "".join(f"%{t} = arith.extf %{i} : {element} to f32\n" for i, t in enumerate("ab")),
            "%a, %b",
        )
    code = f"{widen}%p = arith.mulf {terms} : f32\n%r = arith.addf %p, %acc : f32"
    made = body.reduce([(x, "d0, d2"), (w, "d1, d2")], code, [2], "0.0", shape=(m, n, k))
    body.results = [
        made if element == "f32" else body.map([made], f"%r = arith.truncf %0 : f32 to {element}", element)
    ]
    return body


def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, w, b))


def _copy(name: str) -> Callable:
    """The layer as a function with code of its own: what is compiled of one code object is looked through in
    turn.
    """
    return FunctionType(layer.__code__.replace(co_name=name), layer.__globals__, name)


def check(found: torch.Tensor, exact: torch.Tensor) -> None:
    """Raises if ``found`` is not what ``exact`` (f64) says, within the precision of its dtype."""
    bound = exact.abs().max().item() * (2e-5 if found.dtype == torch.float32 else 1e-2)
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=bound)


def plain(sizes: tuple[int, int, int], dtype: torch.dtype, timed: Callable) -> list[object]:
    """A row of the table of matmuls alone."""
    m, k, n = sizes
    x, w = torch.randn(m, k, dtype=dtype), torch.randn(n, k, dtype=dtype)
    ours = compiled(product(m, k, n, dtype))
    check(ours(x, w)[0], x.double() @ w.double().t())
    found = timed(
        {
            "ours": lambda: ours(x, w),
            "dnn": lambda: linear(x, w, None, "none", [], ""),
            "mm": lambda: x @ w.t(),
        }
    )
    return [*(2e-9 * m * k * n / found[c] for c in ("ours", "dnn", "mm")), found["dnn"] / found["ours"]]


def fused(sizes: tuple[int, int, int], dtype: torch.dtype, timed: Callable) -> list[object]:
    """A row of the table of linear layers with a gelu."""
    m, k, n = sizes
    x, w, b = torch.randn(m, k, dtype=dtype), torch.randn(n, k, dtype=dtype), torch.randn(n, dtype=dtype)
    torch._dynamo.reset()
    inductor = torch.compile(_copy("inductor"), dynamic=False)
    ways = {
        way: torch.compile(_copy(way), backend="shardc", dynamic=False, options={"matmuls": way})
        for way in WAYS
    }
    exact = layer(x.double(), w.double(), b.double())
    for ours in ways.values():
        check(ours(x, w, b), exact)
    # No two that may be the same kernel follow one another: the second would find its code and data in the
    # caches.
    contenders = {
        "auto": ways["auto"],
        "dnn": lambda x, w, b: linear(x, w, b, "gelu", [], "none"),
        "generated": ways["generated"],
        "inductor": inductor,
        "extern": ways["extern"],
    }
    found = timed({name: partial(call, x, w, b) for name, call in contenders.items()})
    rates = [2e-9 * m * k * n / found[c] for c in (*WAYS, "inductor", "dnn")]
    return [*rates, found["auto"] / found["inductor"], found["auto"] / found["dnn"]]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--sizes", nargs="*", default=SIZES)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--repeats", type=int, default=11)
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    clock = thread_time if chosen.threads == 1 else perf_counter
    tables = {
        "matmul": (plain, ["ours", "oneDNN", "torch.mm", "of oneDNN"]),
        "gelu(linear)": (
            fused,
            ["ours", "all generated", "all calls", "Inductor", "oneDNN", "time / Inductor", "time / oneDNN"],
        ),
    }
    for title, (row, columns) in tables.items():
        rows: list[list[object]] = []
        for dtype in (torch.float32, torch.bfloat16):
            for size in chosen.sizes:
                torch.manual_seed(0)
                with torch.no_grad():
                    found = row(
                        tuple(map(int, size.split("x"))), dtype, lambda c: measure(c, chosen.repeats, clock)
                    )
                rows.append([size, NAMES[dtype], *found])
        print(heading(f"CPU {title}, {chosen.threads} thread{'s' * (chosen.threads > 1)}, GFLOP/s"))
        print(table(["m x k x n", "dtype", *columns], rows), flush=True)


if __name__ == "__main__":
    main()
