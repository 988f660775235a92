"""Parameters that ZeRO-3 gathers once and keeps: fewer bytes, more memory, the same training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import shardc
from shardc.compiler.memory import step_peak
from shardc.diagnostics.passes.pipeline import ReshardOfStages
from shardc.report.traffic import transfers
from shardc.step.compile_step import CompiledStep


def compiled(**options: object) -> CompiledStep:
    torch.manual_seed(0)
    layers = (nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4))
    model = nn.Sequential(*layers).double()
    optimizer, batch = torch.optim.AdamW(model.parameters()), torch.randn(8, 64, dtype=torch.float64)
    chosen: dict[str, object] = {"mesh": {"data": 4}, "plan": "zero3", **options}
    return shardc.compile_step(
        model, optimizer, batch, loss=lambda out, _: out.square().mean(), fuse=False, **chosen
    )


def gathers(step: CompiledStep) -> dict[str, int]:
    found: dict[str, int] = {}
    for transfer in transfers(step.compiled.rank_module):
        if transfer.kind == "all_gather" and transfer.axes == ("data",):
            found[transfer.phase] = found.get(transfer.phase, 0) + transfer.times
    return found


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options",
    [{}, {"mesh": {"data": 2, "tensor": 2}, "plan": "zero3*tensor"}],
    ids=["data", "data and tensor"],
)
def test_nothing_is_gathered_in_backward(options: dict[str, object]) -> None:
    again, kept = compiled(**options), compiled(**options, reshard_after_forward=False)
    assert set(gathers(again)) == {"forward", "backward"}
    assert gathers(kept) == {"forward": gathers(again)["forward"]}
    assert kept.check().passed


@pytest.mark.slow
def test_micro_batches_share_one_gather() -> None:
    again, kept = compiled(micro_batches=2), compiled(micro_batches=2, reshard_after_forward=False)
    assert gathers(again) == {"forward": 2, "backward": 2} and gathers(kept) == {"forward": 1}
    assert step_peak(kept.compiled.program).size_bytes > step_peak(again.compiled.program).size_bytes
    assert kept.check().passed


def test_a_pipeline_has_its_own_option() -> None:
    with pytest.raises(ReshardOfStages, match="gather="):
        compiled(
            mesh={"pipe": 2, "data": 2},
            plan="pipeline*zero3",
            micro_batches=2,
            reshard_after_forward=False,
        )
