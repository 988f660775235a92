"""``step.check()`` proves each program that a step has compiled; ``verify=True`` each new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh

import shardc
from shardc.diagnostics.base import ShardcError
from shardc.step.compile_step import CompiledStep
from shardc.step.once import Request
from shardc.step.shard import Compiled
from shardc.step.values import stand_in

pytestmark = pytest.mark.filterwarnings("ignore:.(Forward|Shape|Mode)Compiled")


def rows(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, 4, generator=generator), torch.randint(0, 3, (count,), generator=generator)


def compiled(**options: Any) -> CompiledStep:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters())
    given = {"mesh": {"data": 1}, "loss": F.cross_entropy, "fuse": False, **options}
    return shardc.compile_step(model, optimizer, rows(4), **given)


def without_tanh(compiled: Compiled) -> Compiled:
    """The program made wrong: its activation is left out."""
    ops = [op for op in compiled.program.body.operations if op.operation.name == "func.func"]
    found = [inner for op in ops for inner in op.operation.regions[0].blocks[0].operations]
    (tanh,) = [op.operation for op in found if "aten.tanh" in str(op) and "backward" not in str(op)]
    tanh.results[0].replace_all_uses_with(tanh.operands[0])
    return compiled


def use_all(step: CompiledStep) -> None:
    step(rows(4))
    step(rows(3))
    step.evaluate(rows(4))
    step.forward(rows(2))
    step._model.eval()
    step(rows(4))


NAMES = [
    "batch 0 float32 [3, 4], 1 int64 [3]",
    "another mode, number 1",
    "step.evaluate for batch 0 float32 [4, 4], 1 int64 [4]",
    "step.forward for batch 0 float32 [2, 4], 1 int64 [2]",
]


@pytest.mark.slow
def test_a_check_proves_all_that_was_compiled_and_names_what_is_wrong() -> None:
    step = compiled()
    assert step.check().others == ()
    use_all(step)
    proof = step.check()
    assert proof.passed, proof.render()
    assert [name for name, _ in proof.others] == NAMES
    assert all(f"the program of {name}" in proof.render() for name in NAMES)
    for made in (*step._others.made.values(), *step._modes, *step._forwards.made.values()):
        without_tanh(made.compiled)
    proof = step.check(steps=1)
    assert not proof.passed and proof.exact.passed and proof.own.passed
    assert [name for name, other in proof.others if not other.passed] == NAMES


@pytest.mark.parametrize(
    "use", ["evaluate", *(pytest.param(use, marks=pytest.mark.slow) for use in ("shape", "forward", "mode"))]
)
def test_with_verify_a_wrong_program_never_runs(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = compiled(verify=True)
    step(rows(4))
    before = {name: value.clone() for name, value in step._model.state_dict().items()}
    made = Request.compiled
    monkeypatch.setattr(Request, "compiled", lambda request: without_tanh(made(request)))
    if use == "mode":
        step._model.eval()
    calls = {"shape": step, "mode": step, "evaluate": step.evaluate, "forward": step.forward}
    with pytest.raises(ShardcError, match=r"NOT equal|NotEqual"):
        calls[use](rows(3 if use == "shape" else 4))
    for name, value in step._model.state_dict().items():
        assert torch.equal(value, before[name])


def test_what_stands_for_a_cut_tensor_repeats_its_block_with_no_two_alike() -> None:
    """A rank proves by itself: second moments stay positive, and a swap of two blocks would be seen."""
    with one_process():
        mesh = init_device_mesh("cpu", (1,))
        block = torch.arange(1.0, 13.0).reshape(3, 4)
        cut = DTensor.from_local(
            block, mesh, [Shard(0)], run_check=False, shape=torch.Size((6, 4)), stride=(4, 1)
        )
        found = stand_in(cut)
        assert isinstance(found, Tensor) and not isinstance(found, DTensor) and found.shape == (6, 4)
        torch.testing.assert_close(found, block.repeat(2, 1), rtol=0.02, atol=0)
        assert not torch.equal(found[:3], found[3:]) and bool((found > 0).all())
        whole = DTensor.from_local(torch.tensor(3.0), mesh, [Replicate()])
        assert torch.equal(stand_in(whole), torch.tensor(3.0))


@contextmanager
def one_process() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
