"""Attention by all-to-all of a Llama: communication, computation, and allowed axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from shardc.diagnostics.passes.plan import HeadsNotDivided

B, S, HIDDEN, HEADS = 4, 8, 32, 4
"""Batch, sequence, hidden size and heads of the fixture's Llama."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mesh", "kv_heads", "length"),
    [
        ({"context": 2}, 2, S),
        ({"context": 4}, 2, S),
        ({"context": 4}, 1, S),
        ({"data": 2, "context": 4}, 4, S),
        ({"context": 4}, 4, S - 2),
        ({"context": 4}, 2, S - 1),
    ],
)
def test_a_layer_moves_queries_keys_values_and_the_output(
    llama: Callable, mesh: dict[str, int], kv_heads: int, length: int
) -> None:
    """Four all-to-alls forward, four backward: 1 - 1/n of 1/n of each (Jacobs et al., 2023, section 3.2).

    Where there are fewer heads of keys than devices, each device is sent one of them. A length that devices
    do not divide moves as the next one that they do.
    """
    plan, ways = "data*ulysses" if "data" in mesh else "ulysses", mesh["context"]
    two, four = (llama(layers, plan, mesh, kv_heads=kv_heads, length=length) for layers in (2, 4))
    counts: Counter[tuple[str, str]] = Counter()
    for (phase, kind, _, axes), count in (four.counts() - two.counts()).items():
        counts[phase, kind] += count if axes == ("context",) else 0
    gradients = {} if "data" in mesh else {("backward", "all_reduce"): 18}
    assert +counts == {("forward", "all_to_all"): 8, ("backward", "all_to_all"): 8, **gradients}
    tokens, keys = B // mesh.get("data", 1) * S, HIDDEN * max(kv_heads, ways) // HEADS
    size_bytes = (1 - 1 / ways) / ways * tokens * (2 * HIDDEN + 2 * keys) * 4
    for phase in ("forward", "backward"):
        more = four.bytes_moved("all_to_all", "context", phase)
        assert more - two.bytes_moved("all_to_all", "context", phase) == 2 * size_bytes, phase


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "mesh"),
    [
        ("ulysses", {"context": 4}),
        ("zero3*ulysses", {"data": 2, "context": 2}),
        ("ulysses*sequence", {"context": 2, "tensor": 2}),
        ("ulysses:inner*allgather:outer", {"outer": 2, "inner": 2}),
    ],
)
def test_a_device_does_its_part_of_the_work(llama: Callable, plan: str, mesh: dict[str, int]) -> None:
    compiled = llama(2, plan, mesh).compiled
    assert 0.9 / 4 <= compiled.work.share <= 1 / 4
    assert not list(compiled.work.remarks())


@pytest.mark.slow
def test_two_axes_move_within_rows_and_gather_parts_between_them(llama: Callable) -> None:
    """An all-to-all over the inner axis leaves half of the heads, of which the outer axis gathers half."""
    two, four = (
        llama(layers, "ulysses:inner*allgather:outer", {"outer": 2, "inner": 2}) for layers in (2, 4)
    )
    counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for (_, kind, _, axes), count in (four.counts() - two.counts()).items():
        counts[kind, axes] += count if len(axes) == 1 else 0
    expected = {"all_to_all": ("inner", 16), "all_gather": ("outer", 4), "reduce_scatter": ("outer", 4)}
    assert +counts == {(kind, (axis,)): n for kind, (axis, n) in expected.items()}
    keys = B * S * 2 * HIDDEN // 2 * 4  # of a layer, in f32
    more = four.bytes_moved("all_gather", "outer") - two.bytes_moved("all_gather", "outer")
    assert more == 2 * (keys / 2) * (1 - 1 / 2)


@pytest.mark.slow
def test_what_sends_less_is_chosen(llama: Callable) -> None:
    """Of four devices and as many heads: 4 parts of 4 by all-to-all, 2 whole tensors by all-gather."""
    assert llama(1, "context", {"context": 4}, kv_heads=4).compiled.plan.attention == {"context": "ulysses"}
    assert llama(1, "context", {"context": 4}, kv_heads=1).compiled.plan.attention == {}
    assert llama(1, "context", {"context": 2}, kv_heads=4).compiled.plan.attention == {}
    assert llama(1, "allgather", {"context": 4}, kv_heads=4).compiled.plan.attention == {}


def test_nothing_is_folded(llama: Callable) -> None:
    """All devices have as much of a causal mask: the sequence is whole inside."""
    compiled = llama(1, "ulysses", {"context": 4}).compiled
    assert "folded" not in compiled.levels["2-annotated"]
    assert not [r for r in compiled.remarks if r.name == "NotFolded"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("plan", "mesh", "said"),
    [
        ("ulysses", {"context": 3}, "give 'context' 2 devices and a second axis the rest"),
        ("ulysses", {"context": 8}, "give 'context' 4 devices and a second axis the rest"),
        ("ulysses*tensor", {"context": 2, "tensor": 4}, "beside the 4 ways that other axes shard them"),
    ],
)
def test_heads_that_do_not_divide(llama: Callable, plan: str, mesh: dict[str, int], said: str) -> None:
    with pytest.raises(HeadsNotDivided, match=said):
        llama(1, plan, mesh)
