"""Points of a GPU's task are compiled ahead of time: what their binaries take decides, and nothing is run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_tasks import matmul_gelu

from shardc.backends.triton.compile import Compiled, Figures
from shardc.diagnostics.triton import UnknownGpuTarget
from shardc.tuner.builder.gpu import GpuBuilder
from shardc.tuner.measurer import Measurer
from shardc.tuner.point import Point
from shardc.tuner.space.of_task import space_of
from shardc.tuner.trial import Outcome

pytest.importorskip("triton", reason="Triton is not installed: its kernels cannot be compiled")


def task():
    return replace(matmul_gelu(256), target="sm_90")


def test_a_legal_point_is_built_and_says_what_it_takes():
    point = space_of(task()).ranked(1)[0]
    with Measurer() as measurer:
        first, again = measurer.measure(task(), [point, point])
    assert first.outcome is Outcome.BUILT and first.ratio is None
    assert first.figures["registers"] > 16 and first.figures["spill_bytes"] == 0
    assert again == first


@pytest.mark.parametrize(
    ("spill_bytes", "registers", "warps", "said"),
    [(8, 255, 4, "spills 8 bytes"), (0, 255, 16, "needs 130560 registers, sm_90 has 65536"), (0, 128, 16, "")],
)
def test_what_a_binary_takes_decides(monkeypatch, spill_bytes: int, registers: int, warps: int, said: str):
    """A compiler that says so: legality in closed form leaves few points that do this."""

    def compiled(kernels, targets, folder, processes, limit_s):
        figures = Figures("k", "k.cubin", "k.json", warps, 1024, registers, spill_bytes, 0, 0, 0, 0, 0, 0)
        return [Compiled(kernel, targets[0], (figures,)) for kernel in kernels]

    monkeypatch.setattr("shardc.tuner.builder.gpu.compile_kernels", compiled)
    (built,) = GpuBuilder(1).build(task(), [space_of(task()).ranked(1)[0]])
    assert (built.path is None) == bool(said) and said in built.said
    assert built.figures == {"registers": registers, "spill_bytes": spill_bytes, "shared_bytes": 1024}


def test_what_needs_more_shared_memory_than_there_is_is_not_built():
    tiles = {"block_m": 128, "block_n": 128, "block_k": 128, "warps": 8, "stages": 8}
    (built,) = GpuBuilder(1).build(task(), [Point.of("matmul", tiles)])
    assert built.path is None and "TooMuchSharedMemory" in built.said


def test_an_unknown_target_is_an_error():
    with Measurer() as measurer, pytest.raises(UnknownGpuTarget):
        measurer.measure(replace(task(), target="sm_13"), [Point.of("matmul", {})])
