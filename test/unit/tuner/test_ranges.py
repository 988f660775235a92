"""A few configurations for a kernel at several sizes, from a database's trials, and their loss of time."""

from __future__ import annotations

from pathlib import Path

from kernel_tasks import matmul_gelu, rows

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.tuner.database.database import open_database
from shardc.tuner.database.ranges import ranges


def trial(tile: int, ratio: float | None) -> Trial:
    outcome = Outcome.CRASHED if ratio is None else Outcome.MEASURED
    return Trial(Point.of("t", {"tile": tile}), outcome, ratio, ratio and ratio * 1e-3)


def test_sizes_of_one_kernel_share_points_and_the_loss_is_told(tmp_path: Path):
    small, middle, large, alone = rows(32), rows(48), rows(256), matmul_gelu()
    with open_database(tmp_path / "tuning.db") as database:
        database.record(small, [trial(8, 0.50), trial(16, 0.51), trial(32, 0.9)])
        database.record(middle, [trial(8, 0.80), trial(16, 0.60), trial(4, None)])
        database.record(large, [trial(16, 0.70), trial(32, 0.66)])
        database.record(alone, [trial(8, 0.5)])
        (found,) = ranges(database, small.target, bound=1.1)
        assert set(found.tasks) == {small, middle, large}
        assert found.cover.points == (Point.of("t", {"tile": 16}),)
        assert round(found.cover.worst, 4) == round(0.70 / 0.66, 4) and found.cover.worst_task == large
        (tight,) = ranges(database, small.target, bound=1.0)
        assert len(tight.cover.points) == 3 and tight.cover.worst == 1.0
        (two,) = ranges(database, small.target, bound=1.0, most=2)
        assert len(two.cover.points) == 2 and round(two.cover.worst, 4) == 1.02
        assert ranges(database, "cpu another") == []
