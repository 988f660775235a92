"""Some schedules at some sizes, others each day, and the claims of the table."""

from __future__ import annotations

from datetime import date

import pytest
from matrix import MODELS, SCHEDULES, STAGES, TIMES, Cell, cells, cut_cell, sample, start, try_cell
from stage_recall import Recall
from walk_matrix import TABLE, read_cells

from shardc.options.schedules import AUTO
from shardc.passes.pipeline.schedules import registry


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_equals_one_device(cell: Cell) -> None:
    try_cell(cell)


def test_replayed_results_are_those_that_are_computed() -> None:
    recall, batches = Recall(), MODELS["skips"].batches(1)
    first, second = (Cell("skips", schedule, 2, 4) for schedule in ("fill-drain", "1f1b"))
    start(first, cut_cell(first), recall).train(batches)
    computed = recall.computed
    assert computed == 2 * 2 * 4  # F and B of each stage and micro-batch
    (replayed,), _ = start(second, cut_cell(second), recall).train(batches)
    assert recall.computed == computed
    (plain,), _ = start(second, cut_cell(second)).train(batches)
    assert all(bool((plain[key] == value).all()) for key, value in replayed.items())


def test_what_is_computed_from_other_values_is_computed_again() -> None:
    recall, cell = Recall(), Cell("skips", "1f1b", 2, 4)
    start(cell, cut_cell(cell), recall).train(MODELS["skips"].batches(2))
    assert recall.computed == 2 * (2 * 2 * 4)


def test_a_sample_is_the_same_all_day_and_another_the_next() -> None:
    assert sample(date(2026, 11, 20)) == sample(date(2026, 11, 20)) != sample(date(2026, 11, 21))


def test_the_matrix_is_whole() -> None:
    assert len(set(cells())) == sum(map(len, SCHEDULES.values())) * len(STAGES) * len(TIMES)
    assert set(SCHEDULES["llama"]) == {*registry.SCHEDULES, AUTO}


def test_the_table_has_the_whole_matrix_and_all_is_equal() -> None:
    found = read_cells(TABLE.read_text())
    assert set(found) == set(cells())
    assert {cell for cell, verdict in found.items() if verdict != "equal"} == set()
