"""Twenty models of the zoo, another choice each day: two steps equal eager training on the meshes they passed
on.
"""

from __future__ import annotations

import json
import warnings
from datetime import date

import pytest
from cuts import is_cut, merged
from subjects import SUBJECTS, subject_on
from table import FAILING, TABLE, cause_of, grown, merge, read_failing, read_passing, read_table, render
from trial import CUTS, MESHES, try_model
from walk import sample


@pytest.mark.slow
@pytest.mark.daily
def test_equals_eager_training(zoo_model: str) -> None:
    meshes = {mesh: MESHES[mesh] for mesh in read_passing()[zoo_model]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers, on tiny configurations
        outcomes = list(try_model(SUBJECTS[zoo_model], meshes))
    wrong = [f"{o.mesh}: {o.stage}: {o.reason} {o.where}" for o in outcomes if o.stage != "equal"]
    assert not wrong, "\n".join(wrong)
    assert [o.mesh for o in outcomes] == list(meshes)


@pytest.mark.slow
@pytest.mark.daily
def test_a_cut_is_equal_and_saves(zoo_cut: tuple[str, str]) -> None:
    """Thirty models and meshes of those that were seen to be cut, others each day."""
    model, mesh = zoo_cut
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (outcome,) = try_model(subject_on(model, mesh), {mesh: CUTS[mesh]})
    assert outcome.stage == "equal", f"{outcome.stage}: {outcome.reason} {outcome.where}"
    assert is_cut(mesh, outcome.work), f"a device does {outcome.work:.3f}: {outcome.repeated}"


def test_a_walk_replaces_what_was_known_of_its_models() -> None:
    row = {"mesh": "context2", "model": "A", "stage": "equal", "work": 0.5, "repeated": [], "reason": ""}
    known = merged({}, [row, {**row, "model": "B", "work": 1.0, "repeated": ["a.py:1"]}])
    assert known == {"context2": {"cut": {"A": 0.5}, "uncut": {"B": [1.0, "a.py:1"]}, "failing": {}}}
    fails = {**row, "stage": "run", "reason": "differs"}
    assert merged(known, [fails])["context2"]["failing"] == {"A": "run: differs"}
    assert merged(known, [fails])["context2"]["cut"] == {}


def test_a_sample_is_the_same_all_day_and_another_the_next() -> None:
    day, next_day = date(2026, 11, 20), date(2026, 11, 21)
    assert sample(20, day, SUBJECTS) == sample(20, day, reversed(SUBJECTS)) != sample(20, next_day, SUBJECTS)


def test_the_lists_name_models_of_the_zoo() -> None:
    assert {*read_failing(), *read_passing()} <= set(SUBJECTS)
    for models in json.loads(FAILING.read_text()).values():
        assert models and all(set(meshes) <= {*MESHES, "*"} for meshes in models.values())


@pytest.mark.parametrize(
    ("known", "count"), [({}, 1), ({"M": ["data2"]}, 1), ({"M": ["zero3-4"]}, 0), ({"M": ["*"]}, 0)]
)
def test_the_list_of_failures_may_only_shrink(known: dict[str, list[str]], count: int) -> None:
    row = {
        "model": "M",
        "mesh": "zero3-4",
        "stage": "run",
        "reason": "torch.float64: step 0: 1 of 2 tensors differ",
    }
    assert len(grown([row, {**row, "mesh": "tensor2", "stage": "equal"}], known)) == count
    assert cause_of(row) == "differs from eager training (f64)"


def test_the_table_says_what_the_lists_say() -> None:
    reasons, costs = read_table()
    assert render(*merge({}, {}, set()), reasons, costs, len(SUBJECTS)) == TABLE.read_text()


def test_a_walk_of_one_model_changes_that_model_only() -> None:
    known, gone = read_passing(), next(iter(read_failing()))
    passing, failing = merge({gone: ["data2"]}, {}, {gone})
    assert passing == {**known, gone: ["data2"]}
    assert {model for models in failing.values() for model in models} == set(read_failing()) - {gone}
