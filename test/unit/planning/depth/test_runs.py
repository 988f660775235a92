"""Runs of equal layers: start, period, and sequences that are no run."""

from __future__ import annotations

import copy

import pytest
from torch import nn

from shardc.planning.depth.runs import Stretch, runs_of, stretches


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("aaaaaa", [Stretch(0, 1, 6)]),
        ("aaaaa", []),
        ("abababababab", [Stretch(0, 2, 6)]),
        ("aaabbbbbbbb", [Stretch(3, 1, 8)]),
        ("aaaaaabbbbbb", [Stretch(0, 1, 6), Stretch(6, 1, 6)]),
        ("baaaaaac", [Stretch(1, 1, 6)]),
        ("aabaabaabaabaabaab", [Stretch(0, 3, 6)]),
        ("", []),
    ],
)
def test_stretches(kinds: str, expected: list[Stretch]) -> None:
    assert list(stretches(list(kinds))) == expected


def test_a_period_with_one_matrix_is_doubled() -> None:
    assert stretches(list("a" * 13), [1] * 13) == (Stretch(0, 2, 6),)
    assert stretches(list("ab" * 12), [1, 0] * 12) == (Stretch(0, 4, 6),)
    assert stretches(list("a" * 21), [1] * 21) == (Stretch(0, 2, 10),)
    assert stretches(list("aab" * 6), [1] * 18) == (Stretch(0, 3, 6),)
    assert stretches(list("a" * 11), [1] * 11) == ()
    assert stretches(list("a" * 6), [2] * 6) == (Stretch(0, 1, 6),)


def test_what_has_no_signature_equals_nothing() -> None:
    assert stretches([None] * 8) == ()


def layers(count: int, width: int = 4) -> nn.ModuleList:
    parts = (nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, width))
    return nn.ModuleList(nn.Sequential(*copy.deepcopy(parts)) for _ in range(count))


def test_a_list_inside_a_layer_is_part_of_it() -> None:
    model = nn.ModuleDict({"towers": nn.ModuleList(layers(7) for _ in range(7)), "head": nn.Linear(4, 4)})
    (run,) = runs_of(model)
    assert (run.name, run.layers) == ("towers", model["towers"])


def test_each_list_of_a_model_has_its_run() -> None:
    model = nn.ModuleDict({"encoder": layers(6), "decoder": layers(8, width=8), "short": layers(3)})
    assert [(r.name, r.stretches[0].count) for r in runs_of(model)] == [("encoder", 6), ("decoder", 8)]


def test_a_shortened_list_keeps_what_stands_around_its_run() -> None:
    first, last = nn.Linear(4, 4), nn.Tanh()
    model = nn.Sequential(first, *layers(6), last)
    (run,) = runs_of(model)
    kept = run.shortened([2])
    assert run.owner is None and isinstance(kept, nn.Sequential)
    assert [kept[0], kept[1], kept[2], kept[3]] == [first, model[1], model[2], last]


def test_layers_that_differ_in_a_number_are_no_run() -> None:
    model = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1 * n)) for n in range(8))
    assert runs_of(model) == []
