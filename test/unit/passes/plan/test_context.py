"""Context parallelism of a Llama: keys and values gathered, their gradients scattered, nothing else moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

B, S, H, P, KV = 4, 8, 32, 2, 2 * 8
"""Batch, sequence, hidden size of the fixture's Llama; ways of the axis; elements of a token's keys."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "mesh"), [("context", {"context": P}), ("data*context", {"data": 2, "context": P})]
)
def test_a_layer_moves_keys_and_values_alone(llama: Callable, plan: str, mesh: dict[str, int]) -> None:
    """Two gathers forward, two scatters backward a layer, of a data rank's keys or values; two layers."""
    two, four = (llama(layers, plan, mesh) for layers in (2, 4))
    counts: Counter[tuple[str, str]] = Counter()
    for (phase, kind, _, axes), count in (four.counts() - two.counts()).items():
        counts[phase, kind] += count if axes == ("context",) else 0
    # Besides, in a layer, the gradients of seven matrices and two norms; with data over both axes at once.
    gradients = {("backward", "all_reduce"): 18} if plan == "context" else {}
    assert +counts == {("forward", "all_gather"): 4, ("backward", "reduce_scatter"): 4, **gradients}
    size_bytes = (P - 1) / P * B // mesh.get("data", 1) * S * KV * 4
    for kind, phase in (("all_gather", "forward"), ("reduce_scatter", "backward")):
        more = four.bytes_moved(kind, "context", phase) - two.bytes_moved(kind, "context", phase)
        assert more == 2 * 2 * size_bytes, kind


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "mesh", "devices"),
    [
        ("context", {"context": 2}, 2),
        ("context", {"context": 4}, 4),
        ("zero3*context", {"data": 2, "context": 2}, 4),
        ("context*sequence", {"context": 2, "tensor": 2}, 4),
    ],
)
def test_a_device_does_its_part_of_the_work(
    llama: Callable, plan: str, mesh: dict[str, int], devices: int
) -> None:
    """A little less: a folded sequence's first half sees half of the columns."""
    compiled = llama(2, plan, mesh).compiled
    assert 0.9 / devices <= compiled.work.share <= 1 / devices
    assert not list(compiled.work.remarks())


@pytest.mark.slow
def test_a_causal_sequence_that_is_not_folded_is_remarked(llama: Callable) -> None:
    """Eight tokens are no sixteen blocks; they are four."""
    remarks = {ways: llama(2, "context", {"context": ways}).compiled.remarks for ways in (2, 8)}
    assert [r.name for r in remarks[8] if r.name == "NotFolded"] == ["NotFolded"]
    assert not [r for r in remarks[2] if r.name == "NotFolded"]
