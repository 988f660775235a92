"""Spaces of CPU kernels have exactly the points that the code generator supports."""

import random
from dataclasses import replace

import pytest
import torch
from kernel_tasks import task_of
from space_tasks import (
    Case,
    attention_module,
    columns,
    matmul,
    module_of,
    pointwise,
    softmax,
    task,
    total,
    turned,
)
from torch_mlir import ir

from shardc.backends.cpu.compile import compile_functions
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.matmul.product import Product
from shardc.backends.cpu.tuning import matmul as cpu_matmul
from shardc.backends.tuning.sketches import together
from shardc.backends.tuning.space import Sketch, Space
from shardc.cost.machine import Cpu
from shardc.dialects.context import new_context
from shardc.dialects.kern.config import config
from shardc.tuner.space.of_task import space_of

AVX512 = Cpu(64, 32, (48 << 10, 1 << 20, 32 << 20))
CASE = Case(1, 2, 2, 64, 80, 16, 16, causal=True)
BODIES = {
    "matmul": matmul(48, 80, 64),
    "bf16": matmul(48, 80, 64, element="bf16"),
    "softmax": softmax(32, 1024),
    "columns": columns(300, 64),
    "turned": turned(64, 96),
    "total": total(1 << 16),
    "pointwise": pointwise(64, 2048),
}


def tasks(threads=1):
    found = {name: task(module_of(body), threads=threads) for name, body in BODIES.items()}
    module, _ = attention_module(CASE)
    return found | {
        name: task(module, threads=threads, number=n) for n, name in enumerate(("forward", "backward"))
    }


def compiled(of, point):
    """The library of a task at a point."""
    with new_context() as context, ir.Location.unknown():
        functions = ir.Module.parse(of.text)
        functions.body.operations[0].operation.attributes["kern.config"] = config(dict(point.values), context)
        return compile_functions(functions)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*BODIES, "forward", "backward"])
def test_a_sample_of_the_legal_points_compiles(name):
    of = tasks()[name]
    space, draw = space_of(of), random.Random(0)
    for point in dict.fromkeys([space.ranked(1)[0], space.sample(draw)]):
        assert compiled(of, point)


@pytest.mark.parametrize("threads", [1, 4])
def test_estimates_are_positive_and_what_is_legal_is_in_the_parameters(threads):
    for of in tasks(threads).values():
        space = space_of(of)
        (sketch,) = space.sketches
        for point in space.points():
            assert space.estimate_s(point) > 0
            assert all(point.config[p.name] in p.values for p in sketch.parameters)


def test_what_the_models_count_is_there_for_every_point_and_tells_points_apart():
    for name, of in tasks().items():
        space = space_of(of)
        counts = {p: dict(space.counts(p)) for p in space.points()}
        assert all(value >= 0 for found in counts.values() for value in found.values())
        assert len({tuple(found) for found in counts.values()}) == 1
        assert len({tuple(found.values()) for found in counts.values()}) == len(counts) or name == "turned"


def test_a_matmul_s_estimate_is_the_sum_of_its_cycles(wide):
    found = sketch(Product(1, 512, 512, 512, 4, 1))
    values = {
        "tile_m": 6,
        "tile_n": 64,
        "block_m": 192,
        "block_n": 1024,
        "block_k": 1024,
        "left": 1,
        "right": 1,
    }
    cycles = ("products", "ends", "behind", "right", "left", "results", "meetings")
    total = sum(found.counts(values)[name] for name in cycles)
    assert total <= found.estimate_s(values) * Cpu.clock_hz <= 1.1 * total


@pytest.mark.slow
def test_what_is_made_once_or_of_one_loop_costs_once():
    """The powers of an Adam's corrections are not taken for each element, nor is an op of two results made
    twice.
    """

    def first_s(function):
        return (space := space_of(task_of(function, a, b, step))).estimate_s(space.ranked(1)[0])

    a, b, step = torch.randn(256, 128), torch.randn(128, 256), torch.tensor(3.0)
    plain_s = first_s(lambda a, b, step: [(a @ b) / step])
    assert first_s(lambda a, b, step: [(a @ b) / (1.0 - 0.9**step)]) == pytest.approx(plain_s, rel=0.03)
    rows_s = first_s(lambda a, b, step: [torch.softmax(a, -1) / step])
    assert first_s(lambda a, b, step: [torch.softmax(a, -1) / (1.0 - 0.9**step)]) == pytest.approx(
        rows_s, rel=0.03
    )


def test_counts_of_nests_add_up():
    one = Sketch("one", (), lambda _: None, lambda _: 1.0, lambda _: {"cycles": 2.0, "bytes": 1.0})
    other = replace(one, name="other", counts=lambda _: {"cycles": 3.0})
    assert together([one, other]).counts({}) == {"cycles": 5.0, "bytes": 1.0}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["softmax", "columns", "turned", "total", "pointwise"])
def test_the_default_is_a_point(name):
    space = space_of(tasks(4)[name])
    (sketch,) = space.sketches
    assert sketch.refusal({p.name: getattr(Config(), p.name) for p in sketch.parameters}) is None
    assert all(getattr(Config(), p.name) in p.values for p in sketch.parameters)


def test_parameters_without_an_effect_are_not_there():
    """Nothing is shared among threads where there is one, and a row of 1024 of a short tensor is not streamed
    by it.
    """
    names = {name: {p.name for p in space_of(of).sketches[0].parameters} for name, of in tasks().items()}
    assert names["matmul"] == {"tile_m", "tile_n", "block_m", "block_n", "block_k", "left", "right"}
    # with instructions for bf16 pairs along k must lie side by side; without, packing widens both operands
    is_native = torch.backends.cpu.get_cpu_capability() == "AVX512"
    assert names["bf16"] == names["matmul"] - ({"right"} if is_native else {"left", "right"})
    assert names["columns"] == {"rows"} and names["turned"] == {"tile"} and names["total"] == {"block"}
    assert names["forward"] == names["backward"] == {"queries", "keys"}
    assert "share" in {p.name for p in space_of(tasks(2)["matmul"]).sketches[0].parameters}


LIE = (True, True)
"""Of a product both of whose operands may be read where they lie."""


def sketch(product, machine=AVX512, apart=(2048, 2048)):
    operands = cpu_matmul.Operands((True, False), (4, 4), (0, 0), 0, apart)
    return cpu_matmul.sketch(product, operands, 1, machine)


@pytest.fixture
def wide(monkeypatch):
    """Vectors of 64 bytes and 32 registers, whatever this machine has."""
    from shardc.backends.cpu.matmul import tiles

    monkeypatch.setattr(tiles, "vector_bytes", lambda: 64)
    monkeypatch.setattr(tiles, "vector_registers", lambda: 32)


def test_tiles_that_exceed_the_registers_are_refused(wide):
    found = sketch(Product(1, 512, 512, 512, 4, 1, *LIE))
    legal = {"block_m": 192, "block_n": 1024, "block_k": 1024, "left": 1, "right": 1}
    for m in range(1, 17):
        for vectors in range(1, 7):
            said = found.refusal({"tile_m": m, "tile_n": 16 * vectors, **legal})
            assert (m * vectors + vectors + 1 > 32) == ("vector registers" in (said or ""))
    assert (
        found.refusal({"tile_m": 8, "tile_n": 64, **legal})
        == "a tile of 8 x 64 takes 37 vector registers of 32"
    )


def test_the_right_operand_is_read_where_it_lies_by_whole_tiles_alone(wide):
    found = sketch(Product(1, 500, 512, 512, 4, 1, *LIE))
    values = {
        "tile_m": 6,
        "tile_n": 64,
        "block_m": 192,
        "block_n": 128,
        "block_k": 512,
        "left": 2,
        "right": 1,
    }
    assert found.refusal(values) is None
    assert found.refusal({**values, "tile_m": 5, "right": 2, "tile_n": 80}) == (
        "right = 2 reads whole tiles, and 80 does not divide 512"
    )


def test_no_two_points_make_the_same_tiles(wide):
    product = Product(1, 100, 300, 700, 4, 1, *LIE)
    found = sketch(product)
    points = [p.config for p in Space((found,)).points()]
    made = [(product.tiles(Config.of(c)), c["left"], c["right"]) for c in points]
    assert len(made) == len(set(made)) > 10


def test_the_model_knows_what_was_measured(wide):
    """On 16 x 4096 x 4096 blocks of 1024 columns take 1.5 times as long as those of 256; narrow tiles are
    slower.
    """
    few = sketch(Product(1, 16, 4096, 4096, 4, 1, *LIE))
    tile = {"tile_m": 4, "tile_n": 64, "block_m": 48, "block_k": 1024, "left": 1, "right": 1}
    assert few.estimate_s({**tile, "block_n": 256}) < few.estimate_s({**tile, "block_n": 1024})
    square = sketch(Product(1, 512, 512, 512, 4, 1, *LIE))
    rest = {"block_m": 192, "block_n": 1024, "block_k": 1024, "left": 1, "right": 1}
    assert square.estimate_s({"tile_m": 6, "tile_n": 64, **rest}) < square.estimate_s(
        {"tile_m": 12, "tile_n": 32, **rest}
    )


def test_threads_share_the_work():
    one, four = (space_of(tasks(threads)["softmax"]) for threads in (1, 4))
    same = four.ranked(1)[0]
    alone = replace(same, values=tuple((n, v) for n, v in same.values if n != "work_per_thread"))
    assert four.estimate_s(same) < one.estimate_s(alone)
