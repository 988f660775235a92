"""Compiles that closed-form legality saves, for matmuls on an absent GPU.

    python test/bench/tune_legality.py                                   # sm_90, bf16, 24 of each
    python test/bench/tune_legality.py --sizes 4096x4096x4096 --each 40 --target sm_80

Every combination of block sizes, warps, stages, group, and form is a point; closed forms refuse some. A
seeded sample of the refused and of the legal is compiled ahead of time. *saved*: of the time that compiling
all points would take, the part that those refused would. *fail*: does not compile, needs more shared memory
than there is, or spills more than its estimate may have priced. Refused as a waste (threads without work,
blocks beyond the matrix) are points that compile; refused as too large ones should fail.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from machine import heading, table
from torch_mlir import ir

from shardc.backends.body.extract import extract
from shardc.backends.triton.aot.compile import Compiled, compile_kernels
from shardc.backends.triton.emit.emit import emit_function, read_kernel
from shardc.backends.triton.emit.emitted import Emitted
from shardc.backends.triton.emit.names import said_of_function
from shardc.backends.triton.matmul import kernel as matmul_kernel
from shardc.backends.triton.matmul.product import product_of
from shardc.backends.triton.tuning.matmul import tiling_of
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.space import Sketch
from shardc.cost.machine import Gpu, find_gpu
from shardc.cost.matmul import SPILL_BOUND, Product
from shardc.cost.tilings import refusal, waste
from shardc.diagnostics.triton import TritonKernelNotSupported
from shardc.tuner.space.of_task import space_of_module

sys.path.append(str(Path(__file__).parents[1] / "unit" / "backends" / "cpu"))
from bodies import module_of
from cpu_matmul import product

SIZES = ("4096x4096x4096", "512x2048x512")
SPILL_BYTES = 64
"""Of a thread, that a kernel may have unpriced and still be worth a trial."""


def raw(functions: ir.Module, target: Gpu) -> list[Point]:
    """Every combination of values."""
    space = space_of_module(functions, target.name)
    return [
        point for sketch in space.sketches for point in replace(space, sketches=(_lawless(sketch),)).points()
    ]


def _lawless(sketch: Sketch) -> Sketch:
    return replace(sketch, refusal=lambda values: None)


def kind(point: Point, of: Product, target: Gpu) -> str:
    """``legal``, or what refuses it: ``too large`` or ``waste``."""
    tiling = tiling_of(point.config)
    if refusal(tiling, of, target):
        return "too large"
    rows = -(-of.m // tiling.block_m)
    return "waste" if waste(tiling, of, target) or (tiling.group > 1 and tiling.group > rows) else "legal"


def emitted(functions: ir.Module, point: Point, number: int, target: Gpu) -> Emitted | str:
    """The module of a point, whatever legality says of it; why there is none."""
    with functions.context:
        function = functions.body.operations[0].operation
        i64 = ir.IntegerType.get_signless(64)
        said = {name: ir.IntegerAttr.get(i64, value) for name, value in point.values}
        function.attributes["kern.config"] = ir.DictAttr.get(said)
        function.attributes["sym_name"] = ir.StringAttr.get(f"product_{number}")
        found = matmul_kernel._tiling
        matmul_kernel._tiling = lambda name, of, on, config: tiling_of(config)
        try:
            return emit_function(function, said_of_function(function), target)
        except TritonKernelNotSupported as error:
            return str(error)
        finally:
            matmul_kernel._tiling = found


def compile_all(kernels: Sequence[Emitted], target: Gpu) -> tuple[float, list[str]]:
    """Seconds of one, on average, and why each fails: empty if it does not."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        made = compile_kernels(kernels, [target], Path(folder), processes=1)
        seconds = (time.perf_counter() - start) / max(1, len(kernels))
    return seconds, [type(c.error).__name__ if c.error else _spills(c) for c in made]


def _spills(made: Compiled) -> str:
    spilled = max((f.spill_bytes for f in made.functions), default=0)
    allowed = max(SPILL_BYTES, SPILL_BOUND * made.kernel.estimate.spill_bytes)
    return f"spills {spilled}" * (spilled > allowed)


def rows(size: str, target: Gpu, each: int, seed: int) -> list[list[object]]:
    """A row of the table for each kind of point, and one for all."""
    m, k, n = map(int, size.split("x"))
    functions = extract(module_of(product(m, k, n, torch.bfloat16)))
    kernel = read_kernel(functions.body.operations[0].operation, target)
    of = product_of(kernel.find_matmul(kernel.matmul)[0])
    kinds: dict[str, list[Point]] = {"legal": [], "waste": [], "too large": []}
    for point in raw(functions, target):
        kinds[kind(point, of, target)].append(point)
    draw, mean, found = random.Random(seed), {}, []
    for name, points in kinds.items():
        sample = draw.sample(points, min(each, len(points)))
        texts = [emitted(functions, point, number, target) for number, point in enumerate(sample)]
        mean[name], failed = compile_all([t for t in texts if not isinstance(t, str)], target)
        reasons = [why for why in failed if why] + [t for t in texts if isinstance(t, str)]
        found.append([size, name, len(points), len(sample), len(reasons), mean[name]])
    time_of = {name: mean[name] * len(points) for name, points in kinds.items()}
    saved = 1 - time_of["legal"] / sum(time_of.values())
    return [*found, [size, f"saved: {saved:.1%}", sum(map(len, kinds.values())), "", "", ""]]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--sizes", nargs="*", default=SIZES)
    options.add_argument("--target", default="sm_90")
    options.add_argument("--each", type=int, default=24)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    target = find_gpu(chosen.target)
    found = [row for size in chosen.sizes for row in rows(size, target, chosen.each, chosen.seed)]
    print(heading(f"Legality of matmuls on {target.name}, bf16"))
    print(table(["m x k x n", "points", "how many", "compiled", "fail", "seconds each"], found))


if __name__ == "__main__":
    main()
