"""Version of a code generator: prose does not change it, and the shipped points are of the present one."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardc.backends.tuning.target import code_hash
from shardc.backends.tuning.task import Task
from shardc.tuner.database import shipped
from shardc.tuner.database.place import SHIPPED

SOURCE = '''"""Table."""

class Config:
    """Sizes of tiles."""

    rows: int = 64
    """Rows of a tile."""

    def twice(self):
        """Return two tiles."""
        return 2 * self.rows
'''


@pytest.mark.parametrize(
    "changed",
    [
        SOURCE.replace("Rows of a tile.", "Number of rows."),
        SOURCE.replace('        """Return two tiles."""\n', "        # Two tiles.\n"),
        SOURCE.replace("2 * self.rows", "(2 *\n            self.rows)  # two"),
    ],
)
def test_prose_and_layout_do_not_change_the_hash(changed: str) -> None:
    assert changed != SOURCE
    assert code_hash(changed) == code_hash(SOURCE)


@pytest.mark.parametrize(
    "changed", [SOURCE.replace("64", "32"), SOURCE.replace("2 *", "3 *"), SOURCE.replace("rows", "columns")]
)
def test_code_changes_the_hash(changed: str) -> None:
    assert code_hash(changed) != code_hash(SOURCE)


def test_all_shipped_points_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_SHIPPED_TUNING", str(SHIPPED))
    entries = [entry for table in shipped.entries(Path(SHIPPED)).values() for entry in table.values()]
    assert entries
    for entry in entries:
        task = Task("", entry["target"], entry["threads"])
        vars(task)["structure"] = entry["structure"]  # the file has hashes instead of kernels' texts
        found = shipped.best_shipped(task)
        assert found and found.ratio == entry["ratio"] and found.near is None
