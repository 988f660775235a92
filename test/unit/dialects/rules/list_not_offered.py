"""Lists the layouts that execution shows valid and rules do not offer, with the reason from
``not_offered.md``.

    python test/unit/dialects/rules/list_not_offered.py

Takes as long as the tests of the folder, whose samples it searches. Exits with 1 for a layout without a
reason, or a reason without a layout.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
sys.path.append(str(HERE))

from not_offered import ENTRIES, Entry  # noqa: E402


class Collector:
    """Takes what the folder's conftest has found when the tests are over."""

    def __init__(self) -> None:
        self.found: dict[str, dict[object, str]] = {}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        for plugin in session.config.pluginmanager.get_plugins():
            if getattr(plugin, "__file__", None) == str(HERE / "conftest.py"):
                self.found = plugin.FOUND


def main() -> int:
    torch.set_num_threads(1)  # small tensors
    collector = Collector()
    pytest.main([str(HERE), "-q", "-p", "no:xdist"], plugins=[collector])
    explained, missing = Counter[Entry](), 0
    for target, layouts in sorted(collector.found.items()):
        for layout, rule in sorted(layouts.items(), key=lambda item: str(item[0])):
            reasons = [e for e in ENTRIES if e.explains(target, layout)]  # type: ignore[arg-type]
            explained.update(reasons[:1])
            missing += not reasons
            print(f"{target:40} {layout}\n    {rule}\n    {reasons[0].why if reasons else 'NO REASON'}")
    bearing = sum(map(bool, collector.found.values()))
    print(
        f"\n{len(collector.found)} operators searched; {explained.total() + missing} layouts of {bearing}, "
        f"{missing} without a reason"
    )
    for entry in ENTRIES:
        print(f"{explained[entry]:6} by the row | {entry.op} | {entry.layout} |")
    return int(missing > 0 or any(not explained[e] for e in ENTRIES))


if __name__ == "__main__":
    sys.exit(main())
