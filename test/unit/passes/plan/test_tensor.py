"""Tensor and sequence parallelism of a Llama: Megatron's collectives, found by propagation from a few
annotations.

Figures are those of one layer: the difference between a model of four layers and one of two, halved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

B, S, H, P = 4, 8, 32, 2
"""Batch, sequence and hidden size of the fixture's Llama; ways of the tensor axis."""
TENSOR = ("tensor",)


def _per_layer(
    llama: Callable, plan: str, mesh: dict[str, int]
) -> tuple[Counter, dict[tuple[str, str], float]]:
    """What one layer adds: counts by (phase, kind, local shape, axes), and bytes by (phase, kind)."""
    two, four = (llama(layers, plan, mesh) for layers in (2, 4))
    assert not two.counts() - four.counts(), "more layers, fewer collectives"
    counts = four.counts() - two.counts()
    assert all(n % 2 == 0 for n in counts.values()), counts
    moved: dict[tuple[str, str], float] = {}
    for sign, program in ((0.5, four), (-0.5, two)):
        for t in program.transfers:
            moved[t.phase, t.kind] = moved.get((t.phase, t.kind), 0) + sign * t.bytes_moved
    return Counter({key: n // 2 for key, n in counts.items()}), {key: n for key, n in moved.items() if n}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "mesh", "rows"),
    [("tensor", {"tensor": 2}, B), ("data*tensor", {"data": 2, "tensor": 2}, B // 2)],
    ids=["tensor", "data*tensor"],
)
def test_tensor_has_two_all_reduces_forward_and_two_backward(
    llama: Callable, plan: str, mesh: dict[str, int], rows: int
) -> None:
    """Each of B*S*H elements (of a data rank's B). Shoeybi et al. 2019; compiled DTensor has 5 backward."""
    counts, moved = _per_layer(llama, plan, mesh)
    over_tensor = {
        (phase, kind, shape): n for (phase, kind, shape, axes), n in counts.items() if axes == TENSOR
    }
    assert {key[:2]: n for key, n in over_tensor.items()} == {
        ("forward", "all_reduce"): 2,
        ("backward", "all_reduce"): 2,
    }
    for _, _, shape in over_tensor:
        assert _numel(shape) == rows * S * H
    if "data" not in mesh:
        one = 2 * (P - 1) / P * B * S * H * 4
        assert moved == {("forward", "all_reduce"): 2 * one, ("backward", "all_reduce"): 2 * one}


@pytest.mark.slow
def test_sequence_has_the_same_volume_in_scatters_and_gathers(llama: Callable) -> None:
    """Two gathers and two scatters each way, the bytes of the all-reduces (Korthikanti et al. 2022).

    Besides, the gradients of the two norms' weights, made from a part of the sequence each, are summed: H
    elements.
    """
    counts, moved = _per_layer(llama, "sequence", {"tensor": P})
    norms = counts.pop(("backward", "all_reduce", (1, 1, H), TENSOR), 0) or counts.pop(
        ("backward", "all_reduce", (H,), TENSOR), 0
    )
    assert norms == 2
    kinds: Counter[tuple[str, str]] = Counter()
    for (phase, kind, shape, axes), n in counts.items():
        assert axes == TENSOR
        assert _numel(shape) == (B * S * H if kind == "reduce_scatter" else B * S * H // P)
        kinds[phase, kind] += n
    assert kinds == {
        (phase, kind): 2 for phase in ("forward", "backward") for kind in ("all_gather", "reduce_scatter")
    }
    all_reduces = 2 * 2 * (P - 1) / P * B * S * H * 4
    for phase in ("forward", "backward"):
        assert moved[phase, "all_gather"] + moved[phase, "reduce_scatter"] == all_reduces


@pytest.mark.slow
def test_a_gradient_and_its_transpose_are_gathered_once(llama: Callable) -> None:
    """One sequence a micro-batch: the gradient that goes back into a layer's input and into its weights, one
    the transpose of the other, is put together once: two gathers a layer each way, in every one of the
    micro-batches.
    """
    counts = [llama(n, "data*sequence", {"data": 2, "tensor": 2}, micro_batches=2).counts() for n in (1, 2)]
    kinds = Counter(
        {(phase, kind): 0 for phase in ("forward", "backward") for kind in ("all_gather", "reduce_scatter")}
    )
    for (phase, kind, shape, axes), n in (counts[1] - counts[0]).items():
        if axes == TENSOR and kind != "all_reduce":
            assert _numel(shape) in (S * H, S * H // 2)
            kinds[phase, kind] += n
    assert kinds == dict.fromkeys(kinds, 2 * 2)


@pytest.mark.slow
def test_state_is_cut_like_its_parameters(llama: Callable) -> None:
    program = llama(2, "tensor", {"tensor": 2})
    layouts, states = program.layouts(), program.layouts("opt_state")
    name = "model.layers.1.mlp.down_proj.weight"
    assert layouts[name] == "[*, tensor]"
    assert states[f"{name}/exp_avg"] == states[f"{name}/exp_avg_sq"] == "[*, tensor]"
    assert layouts["model.layers.0.self_attn.k_proj.weight"] == "[tensor, *]"
    assert layouts["model.norm.weight"] == "[*]"


def _numel(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
