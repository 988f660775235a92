"""Spaces of kernels on absent GPUs: all legal points compile, and the backend's choice is one of them."""

import random

import pytest
from space_tasks import Case, attention_module, columns, matmul, module_of, pointwise, softmax, task
from torch_mlir import ir

from shardc.backends.triton.config import tile_of
from shardc.backends.triton.emit.emit import emit_function, read_kernel
from shardc.backends.triton.emit.names import said_of_function
from shardc.backends.triton.matmul.product import product_of
from shardc.backends.triton.tuning.matmul import tiling_of
from shardc.cost.machine import GPUS
from shardc.cost.tilings import choose
from shardc.dialects.context import new_context
from shardc.dialects.kern.config import config
from shardc.tuner.space.of_task import space_of

CASE = Case(1, 4, 2, 256, 256, 64, 64, causal=True)
BODIES = {
    "matmul": matmul(512, 1024, 2048, element="bf16"),
    "softmax": softmax(4096, 1024),
    "columns": columns(8192, 512),
    "pointwise": pointwise(512, 1024),
}


def tasks(target):
    found = {name: task(module_of(body), target) for name, body in BODIES.items()}
    module, _ = attention_module(CASE)
    return found | {name: task(module, target, number=n) for n, name in enumerate(("forward", "backward"))}


def emitted(of, point):
    with new_context() as context, ir.Location.unknown():
        functions = ir.Module.parse(of.text)
        function = functions.body.operations[0].operation
        function.attributes["kern.config"] = config(dict(point.values), context)
        return emit_function(function, said_of_function(function), GPUS[of.target])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", GPUS)
def test_the_backend_takes_legal_points_of_every_sketch(target):
    draw = random.Random(0)
    for of in tasks(target).values():
        space = space_of(of)
        for _ in range(4):
            point = space.sample(draw)
            made = emitted(of, point)
            warps = {value for name, value in point.values if name.endswith("warps")}
            assert warps & {f.num_warps for f in made.functions}


@pytest.mark.parametrize("target", GPUS)
def test_what_the_backend_chooses_itself_is_a_point(target):
    with new_context(), ir.Location.unknown():
        for name, of in tasks(target).items():
            if name in ("forward", "backward"):
                continue
            functions = ir.Module.parse(of.text)
            kernel = read_kernel(functions.body.operations[0].operation, GPUS[target])
            space = space_of(of)
            if kernel.matmul is not None:
                product = product_of(kernel.find_matmul(kernel.matmul)[0])
                chosen = choose(product, GPUS[target])
                sketches = {s.name.removeprefix("matmul_"): s for s in space.sketches}
                form = "persistent" if chosen.persistent else "split" if chosen.split > 1 else "tiles"
                values = {p.name: getattr(chosen, p.name) for p in sketches[form].parameters}
                assert sketches[form].refusal(values) is None and tiling_of(values) == chosen
            else:
                (function,) = kernel.functions
                tile = tile_of(kernel.extent(function), GPUS[target], {})
                (sketch,) = space.sketches
                values = {
                    p.name: getattr(tile, "columns" if p.name == "block" else p.name)
                    for p in sketch.parameters
                }
                assert (
                    all(values[p.name] in p.values for p in sketch.parameters)
                    and sketch.refusal(values) is None
                )


@pytest.mark.slow
def test_a_point_without_a_form_has_none():
    """All three blocks say the whole tile: what the model would split or loop over is then a
    program a tile.
    """
    of = task(module_of(matmul(16, 64, 8192, element="bf16")), "sm_90")
    space = space_of(of)
    tiles = next(s for s in space.sketches if s.name == "matmul_tiles")
    assert space.ranked(1)[0].sketch == "matmul_split"
    point = next(p for p in space.points() if p.sketch == tiles.name)
    assert len(emitted(of, point).functions) == 1 and len(emitted(of, space.ranked(1)[0]).functions) == 2


def test_refusals_say_the_numbers():
    space = space_of(tasks("sm_90")["matmul"])
    tiles = next(s for s in space.sketches if s.name == "matmul_tiles")
    values = {"block_m": 256, "block_n": 256, "block_k": 64, "warps": 8, "stages": 4, "group": 1}
    assert tiles.refusal(values) == "4 stages take 263168 bytes of shared memory of 232448"
    assert (
        tiles.refusal({**values, "block_k": 32, "stages": 2})
        == "a thread holds 256 values, and spills from 256 on"
    )
    assert tiles.refusal({**values, "block_m": 48}) == "block_m = 48 is no power of 2"
