"""Settings of all Python tests, made before anything imports torch; processes that tests start
inherit them.
"""

import os

# Tests run side by side (pytest -n): one thread each is faster than all of them fighting for the cores.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
# Models have random weights and small configurations: nothing is ever downloaded.
os.environ["HF_HUB_OFFLINE"] = "1"
# Nor is anything tuned by what was measured on this machine before.
os.environ["SHARDC_TUNING_DB"] = "/nonexistent/tuning.db"
# Nor by what comes with shardc for machines like this one.
os.environ["SHARDC_SHIPPED_TUNING"] = ""
# Nor is a step loaded that another test compiled: tests plant bugs that no key sees.
os.environ["SHARDC_STEP_CACHE"] = "0"
os.environ["SHARDC_PLAN_CACHE"] = "0"

# Nor does a slow machine write more to standard error than a fast one.
os.environ["SHARDC_PROGRESS"] = "0"

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from random import Random
from threading import Barrier
from typing import Any
from zlib import crc32

import pytest

DAY = os.environ.setdefault("TEST_DAY", date.today().isoformat())
"""Which cases are drawn; ``TEST_DAY=2026-11-20`` repeats that day's, ``TEST_DAY=all`` runs all of them.
Workers of ``pytest -n`` inherit it.
"""
DAYS = 10
"""In how many days each slow test has its turn under ``--slow-today``, unless it is marked ``daily``."""
_left_out: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow-today",
        action="store_true",
        help=f"of the slow tests only those whose turn it is today: each runs every {DAYS} days",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Of a function that is ``sampled(n)``, marks all cases but ``n`` slow, which are spread evenly. Of one
    that is ``drawn(n)``, keeps ``n`` of the cases that options choose, by the date.
    Under ``--slow-today`` a slow test waits for its turn.
    """
    for found, count in _cases(items, "sampled"):
        kept = {number * len(found) // count for number in range(count)}
        for number, item in enumerate(found):
            if number not in kept:
                item.add_marker("slow")
    yield
    left_out: set[str] = set()
    for found, count in _cases(items, "drawn"):
        if DAY != "all" and len(found) > count:
            name = found[0].nodeid.partition("[")[0]
            kept = Random(f"{DAY} {name}").sample(range(len(found)), count)
            left_out |= {item.nodeid for number, item in enumerate(found) if number not in kept}
            _left_out.append(f"{name.rpartition('/')[2]} {count} of {len(found)}")
    if DAY != "all" and config.getoption("slow_today"):
        waiting = (i for i in items if i.get_closest_marker("slow") and not i.get_closest_marker("daily"))
        slow = sorted({item.nodeid for item in waiting} - left_out)
        today = date.fromisoformat(DAY).toordinal()
        later = {test for test in slow if (crc32(test.encode()) + today) % DAYS}
        _left_out.append(f"slow tests {len(slow) - len(later)} of {len(slow)}")
        left_out |= later
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def _cases(items: list[pytest.Item], mark: str) -> Iterator[tuple[list[pytest.Item], int]]:
    """The cases of each function that has the mark, and its number."""
    cases: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker(mark):
            cases.setdefault((str(item.path), item.name.partition("[")[0]), []).append(item)
    for found in cases.values():
        (count,) = found[0].get_closest_marker(mark).args
        yield found, count


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under ``pytest -n`` the workers draw."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = _left_out


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _left_out[:] = getattr(node, "workeroutput", {}).get("left_out", _left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _left_out:
        terminalreporter.write_line(
            f"cases drawn for {DAY} (TEST_DAY=all runs all): {', '.join(sorted(_left_out))}"
        )


@pytest.fixture(autouse=True)
def no_process_group_is_left() -> Iterator[None]:
    """Ends the process group that a step makes for its DTensors on a mesh of one rank, so that the next test
    begins without one.
    """
    was_there = _has_process_group()
    yield
    if _has_process_group() and not was_there:
        sys.modules["torch.distributed"].destroy_process_group()


LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def no_launcher_is_left() -> Iterator[None]:
    """Fails a test that leaves torchrun's variables changed: later compiles would believe them."""
    before = {name: os.environ.get(name) for name in LAUNCHER}
    yield
    changed = [name for name in LAUNCHER if os.environ.get(name) != before[name]]
    for name in changed:
        value = before[name]
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    assert not changed, f"the test left these variables changed: {', '.join(changed)}"


@pytest.fixture(autouse=True)
def no_machine_code_is_left() -> None:
    """Each test compiles its own kernels: others have planted bugs, or count what is compiled."""
    kept = sys.modules.get("shardc.backends.cpu.object_code.kept")
    if kept is not None:
        kept.forget()


def _has_process_group() -> bool:
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_initialized()


@pytest.fixture
def in_four_threads() -> Callable[[Callable[[int], None]], None]:
    """``in_four_threads(work)`` calls ``work`` with 0 to 3 at once and raises what any of the
    calls raises.
    """

    def run(work: Callable[[int], None]) -> None:
        start = Barrier(4)

        def begin(number: int) -> None:
            start.wait()
            work(number)

        with ThreadPoolExecutor(4) as pool:
            for call in [pool.submit(begin, number) for number in range(4)]:
                call.result()

    return run
