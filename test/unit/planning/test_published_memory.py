"""Memory as papers have it: ZeRO's table (Rajbhandari et al. 2020, section 5) and activations of a layer
(Korthikanti et al. 2022, table 2), asked of a plan.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from master_adam import MasterAdam
from megatron_layer import Again, Stack
from torch import nn

from shardc.backends.torch.memory.dry_run import Peak
from shardc.planning.candidates import Candidate
from shardc.planning.memory import RankMemory
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question

S, B, H, A = 64, 2, 128, 8
"""Sequence, batch, hidden, heads."""
SBH, SCORES = S * B * H, A * S * S * B
STATISTICS = 2 * 2 * 2 * S * B
"""Two layer norms' mean and rstd in 2 bytes, which the formula leaves out."""
DEVICES = 8
COUNTER = 4
"""Bytes of AdamW's step, one a parameter, which the table leaves out."""


def _kept(mesh: dict[str, int], plan: str, again: Again = "nothing") -> dict[str, float]:
    """Bytes by kind that a layer adds to the peak."""
    few, many = (_stack(layers, tuple(mesh.items()), plan, again).kinds for layers in (2, 4))
    return {kind: (many[kind] - few[kind]) / 2 for kind in few}


@cache
def _stack(layers: int, mesh: tuple[tuple[str, int], ...], plan: str, again: Again) -> RankMemory:
    with torch.device("meta"):
        model = Stack(layers, H, A, again).bfloat16()
        batch = torch.empty(B, S, H, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Pricer(Question("stack", model, optimizer, (batch,))).price(Candidate(dict(mesh), plan)).memory[0]


@pytest.mark.slow
def test_a_layer() -> None:
    """sbh(34 + 5as/h). Masks of dropout have 2 bytes here: one more for two of sbh, and for the scores."""
    formula = SBH * (34 + 5 * A * S / H)
    assert _kept({"data": 1}, "data")["activations"] == formula + 2 * SBH + SCORES + STATISTICS


def test_a_layer_cut_over_tensor() -> None:
    """sbh(10 + 24/t + 5as/(ht))."""
    t = 2
    formula = SBH * (10 + 24 / t + 5 * A * S / (H * t))
    assert _kept({"tensor": t}, "tensor")["activations"] == formula + 2 * SBH + SCORES / t + STATISTICS


@pytest.mark.slow
def test_a_layer_cut_over_the_sequence() -> None:
    """sbh/t (34 + 5as/h). What is gathered for two products, 2sbh each, is kept and not gathered again."""
    t = 2
    kept = _kept({"tensor": t}, "sequence")
    formula = SBH / t * (34 + 5 * A * S / H)
    masks = (2 * SBH + SCORES) / t
    gathered = 2 * 2 * SBH
    assert kept["collectives"] == gathered
    assert kept["activations"] == formula + masks + STATISTICS / t - gathered / t


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("mesh", "plan", "t"), [({"data": 1}, "data", 1), ({"tensor": 2}, "tensor", 2)])
def test_a_layer_with_selective_recomputation(mesh: dict[str, int], plan: str, t: int) -> None:
    """sbh(10 + 24/t). Masks of dropout have 2 bytes here."""
    kept = _kept(mesh, plan, "attention")
    assert kept["activations"] == SBH * (10 + 24 / t) + 2 * SBH + STATISTICS
    assert kept["collectives"] == 0


@pytest.mark.slow
def test_a_layer_cut_over_the_sequence_with_selective_recomputation() -> None:
    """34sbh/t. What is gathered for two products, 2sbh each, is kept and not gathered again."""
    t = 2
    kept = _kept({"tensor": t}, "sequence", "attention")
    gathered = 2 * 2 * SBH
    assert kept["collectives"] == gathered
    assert kept["activations"] == 34 * SBH / t + (2 * SBH + STATISTICS - gathered) / t


@pytest.mark.slow
def test_a_layer_that_is_computed_again() -> None:
    """2sbh: its input. What else the forward takes is the same for each."""
    few, many = (_forward_bytes(_stack(layers, (("data", 1),), "data", "layers")) for layers in (2, 4))
    assert (many - few) / 2 == 2 * SBH


def _forward_bytes(memory: RankMemory) -> int:
    """The most that the forward makes."""
    assert isinstance(memory.peak, Peak)
    curve = memory.peak.curve
    sizes = (m.size_bytes for m in curve.moments if curve.places[m.place].phase == "forward")
    return max(sizes) - memory.peak.given_bytes


@cache
def _zero(plan: str, dtype: torch.dtype) -> tuple[RankMemory, int]:
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(4))).to(dtype)
        batch = torch.empty(2 * DEVICES, 64, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters())
    question = Question("layers", model, optimizer, (batch,), lambda out, _: out.float().square().sum())
    return Pricer(question).price(Candidate({"data": DEVICES}, plan)).memory[0], question.parameters


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("plan", "params", "states"),
    [("data", 1, 1), ("zero1", 1, DEVICES), ("zero2", 1, DEVICES), ("zero3", DEVICES, DEVICES)],
)
def test_zero_divides_parameters_and_state(plan: str, params: int, states: int, dtype: torch.dtype) -> None:
    """Two moments in the parameters' dtype, so K = 8 in f32."""
    memory, count = _zero(plan, dtype)
    assert memory.given["param"] == dtype.itemsize * count / params
    assert memory.given["opt_state"] == 2 * dtype.itemsize * count / states + 4 * COUNTER


def test_gradients_are_whole_in_data_parallelism() -> None:
    memory, count = _zero("data", torch.float32)
    assert memory.kinds["gradients"] == 4 * count


ZERO_DEVICES, ZERO_PARAMETERS = 64, 7.5
"""Of ZeRO's figure 1 and table 1: devices, and numbers in 10^9."""


@cache
def _mixed(plan: str) -> tuple[RankMemory, int]:
    """16-bit parameters and gradients; in f32 a copy and two moments, so K = 12."""
    model = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(4))).bfloat16()
    batch = torch.empty(2 * ZERO_DEVICES, 64, dtype=torch.bfloat16)
    optimizer = MasterAdam(model.parameters())
    question = Question("mixed", model, optimizer, (batch,), lambda out, _: out.float().square().sum())
    return Pricer(question).price(Candidate({"data": ZERO_DEVICES}, plan)).memory[0], question.parameters


@pytest.mark.parametrize(
    ("plan", "bytes_a_number", "published_gb"),
    [
        ("data", 2 + 2 + 12, "120"),
        ("zero1", 2 + 2 + 12 / ZERO_DEVICES, "31.4"),
        ("zero2", 2 + (2 + 12) / ZERO_DEVICES, "16.6"),
        ("zero3", (2 + 2 + 12) / ZERO_DEVICES, "1.88"),
    ],
)
def test_zero_with_a_master_copy(plan: str, bytes_a_number: float, published_gb: str) -> None:
    """Parameters, optimizer state and gradients. These are whole at the end of backward, which counts for
    ZeRO-1; here it scatters them then as ZeRO-2 does, of which counts what the optimizer reads.
    """
    memory, count = _mixed(plan)
    gradients = memory.kinds["gradients"] if plan in ("data", "zero1") else _read_by_the_optimizer(memory)
    held = memory.given["param"] + memory.given["opt_state"] + gradients
    assert held == bytes_a_number * count
    assert f"{ZERO_PARAMETERS * held / count:.3g}" == published_gb


def _read_by_the_optimizer(memory: RankMemory) -> int:
    """Bytes of gradients when the update begins."""
    assert isinstance(memory.peak, Peak)
    record = memory.peak.record
    first = next(height for height in record.heights if height.place.phase == "optimizer")
    return sum(alive.size_bytes for alive in record.alive(first.made) if alive.kind == "gradients")
