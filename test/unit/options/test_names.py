"""Names that options know as data are those that passes and backends have."""

from __future__ import annotations

from shardc.backends.registry import target_names
from shardc.options.presets import PRESETS
from shardc.options.schedules import RULES
from shardc.options.targets import TARGETS
from shardc.passes.pipeline.schedules.registry import GENERATORS, SCHEDULES
from shardc.passes.plan.presets import APPLY


def test_presets() -> None:
    assert [*APPLY] == [*PRESETS]


def test_targets() -> None:
    assert tuple(TARGETS) == target_names()


def test_schedules() -> None:
    assert {*GENERATORS} == {*RULES}
    for name, named in SCHEDULES.items():
        made = named.make_for(2, named.nearest(2, 4), named.fewest, None)
        assert made.changes_mathematics == RULES[name].changes_mathematics
