"""Points of a GPU's task, compiled ahead of time: resources of binaries decide, and nothing is run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_tasks import matmul_gelu

from shardc.backends.triton.aot.compile import Compiled, Figures
from shardc.backends.triton.tuning.builder import GpuBuilder
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.diagnostics.kernels import UnknownTarget
from shardc.tuner.cost_model.boosted_trees import BoostedTrees
from shardc.tuner.measurer import Measurer
from shardc.tuner.space.of_task import space_of

pytest.importorskip("triton", reason="Triton is not installed: its kernels cannot be compiled")


def task():
    return replace(matmul_gelu(256), target="sm_90")


@pytest.mark.slow
def test_a_legal_point_is_built_and_says_what_it_takes():
    point = space_of(task()).ranked(1)[0]
    with Measurer() as measurer:
        first, again = measurer.measure(task(), [point, point])
    assert first.outcome is Outcome.BUILT and first.ratio is None
    assert first.figures["registers"] > 16 and first.figures["spill_bytes"] == 0
    assert first.figures["stores"] >= first.figures["wide_stores"] > 0
    assert again == first


def test_what_a_binary_has_is_told_to_the_cost_model():
    space, figures = (
        space_of(task()),
        {"registers": 90, "spill_bytes": 0, "shared_bytes": 4096, "matrix_ops": 8, "loads": 2},
    )
    first, other = space.ranked(2)
    trees = BoostedTrees()
    trees.learn(task(), space, [Trial(first, Outcome.BUILT, figures=figures)])
    told = {n: v for n, v in trees.features(task(), space, first).items() if n.startswith("binary ")}
    assert told == {f"binary {name}": value for name, value in figures.items()}
    assert not [name for name in trees.features(task(), space, other) if name.startswith("binary ")]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("spill_bytes", "priced", "registers", "warps", "said"),
    [
        (8, 0, 255, 4, "spills 8 bytes"),
        (9, 4, 255, 4, "spills 9 bytes"),
        (8, 4, 255, 4, ""),
        (0, 0, 255, 16, "needs 130560 registers, sm_90 has 65536"),
        (0, 0, 128, 16, ""),
    ],
)
def test_what_a_binary_takes_decides(
    monkeypatch, spill_bytes: int, priced: int, registers: int, warps: int, said: str
):
    """A compiler that says so: legality in closed form leaves few points that do this."""

    def compiled(kernels, targets, folder, processes, limit_s):
        figures = Figures("k", "k.cubin", "k.json", warps, 1024, registers, spill_bytes, 0, 0, 0, 0, 0, 0)
        spilling = [replace(k, estimate=replace(k.estimate, spill_bytes=priced)) for k in kernels]
        return [Compiled(kernel, targets[0], (figures,)) for kernel in spilling]

    monkeypatch.setattr("shardc.backends.triton.tuning.builder.compile_kernels", compiled)
    (built,) = GpuBuilder(1).build(task(), [space_of(task()).ranked(1)[0]])
    assert (built.path is None) == bool(said) and said in built.said
    taken = {name: built.figures[name] for name in ("registers", "spill_bytes", "shared_bytes")}
    assert taken == {"registers": registers, "spill_bytes": spill_bytes, "shared_bytes": 1024}


def test_what_needs_more_shared_memory_than_there_is_is_not_built():
    tiles = {"block_m": 128, "block_n": 128, "block_k": 128, "warps": 8, "stages": 8}
    (built,) = GpuBuilder(1).build(task(), [Point.of("matmul", tiles)])
    assert built.path is None and "TooMuchSharedMemory" in built.said


def test_an_unknown_target_is_an_error():
    with Measurer() as measurer, pytest.raises(UnknownTarget):
        list(measurer.measure(replace(task(), target="sm_13"), [Point.of("matmul", {})]))
