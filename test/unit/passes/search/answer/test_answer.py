"""The answer of a search on its plan, as text and as an attribute."""

from __future__ import annotations

from dataclasses import replace

from torch_mlir import ir

from shardc.dialects.context import new_context
from shardc.passes.search.answer.answer import Answer, RunnerUp

RUNNER_UP = RunnerUp("layers.*.up", 4, "data rows", "data columns", 2e-3, 2e-3)
ANSWER = Answer(
    0.1, 0.099, "optimal", 20, 3e9, 4e9, (("products", 0.07), ("data", 0.03)), 0.0, (RUNNER_UP,), 1
)


def test_the_answer_stands_on_the_module() -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.create()
        assert Answer.read(module) is None
        ANSWER.write(module)
        assert Answer.read(ir.Module.parse(str(module))) == ANSWER


def test_the_largest_cause_bounds_the_plan() -> None:
    assert (
        ANSWER.bound() == "products, attention among them, limit the plan: 70% of the step; memory suffices"
    )
    waiting = replace(ANSWER, causes=(("products", 0.04), ("data", 0.06)))
    assert waiting.bound().startswith("the links along 'data' limit the plan: 60%")


def test_memory_bounds_the_plan_where_more_of_it_saves_time() -> None:
    text = replace(ANSWER, percent_s=1e-3).bound()
    assert text == "memory limits the plan: it needs 3.0 GB of 4.0 GB, and 1% more saves at most 1.000 ms"


def test_runner_ups_are_a_table() -> None:
    title, row = ANSWER.render()[1:]
    assert "1 that take less time" in title
    assert row == "  layers.*.up  4 x  data rows  data columns  +2.000 ms  +2.0%"
    uncertain = replace(RUNNER_UP, least_s=1e-3, fits=False)
    assert replace(ANSWER, runners_up=(uncertain,)).render()[2].endswith("1.000 ms at least, does not fit")
