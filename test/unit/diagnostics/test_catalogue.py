"""Every remark and warning has an id in the catalogue, by which it is found and silenced; errors stay."""

import ast
import re
import warnings
from pathlib import Path

import pytest

import shardc
from shardc.diagnostics.base import collect_remarks, remark
from shardc.diagnostics.catalogue import (
    REMARKS,
    WARNED_ERRORS,
    WARNINGS,
    check_silenced,
    errors_by_id,
    silenceable,
)
from shardc.diagnostics.options import SilencedNothing
from shardc.runtime.report.messages import StateWarning, warn

ROOT = Path(__file__).resolve().parents[3]
SOURCES = [
    path
    for folder in ("python", "dialects", "passes", "backends")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.resolve() == path
]


def ids_in(path: Path, names: tuple[str, ...]) -> list[str]:
    """The texts that calls of ``names`` have as their first argument."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    called = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id in names and c.args]
    return [str(c.args[0].value) for c in called if isinstance(c.args[0], ast.Constant)]


@pytest.mark.slow
def test_the_catalogue_has_the_ids_of_all_remarks_and_warnings() -> None:
    said = {name for path in SOURCES for name in ids_in(path, ("remark", "Remark"))}
    assert said == set(REMARKS)
    warned = {name for path in SOURCES for name in ids_in(path, ("warn", "warn_at", "_warn"))}
    assert warned == set(WARNINGS)
    assert set(WARNED_ERRORS) <= set(errors_by_id()) and not set(WARNED_ERRORS) & (
        set(REMARKS) | set(WARNINGS)
    )


def test_no_warning_goes_around_it() -> None:
    direct = re.compile(r"warnings\.warn(_explicit)?\(|\(UserWarning\)")
    found = {path.relative_to(ROOT).as_posix() for path in SOURCES if direct.search(path.read_text())}
    assert found == {"python/shardc/runtime/report/messages.py"}


def test_a_remark_is_found_by_its_id_and_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    with collect_remarks() as said:
        remark("Padded", "dims of size 5 are padded to 6", "model.py:3")
    assert said[0].render() == "[Padded] dims of size 5 are padded to 6 (at model.py:3)"
    monkeypatch.setenv("SHARDC_SILENCE", "NotCut, Padded")
    with collect_remarks() as said:
        remark("Padded", "dims of size 5 are padded to 6")
        remark("ReplicatedOp", "aten.foo has no rule")
    assert [r.name for r in said] == ["ReplicatedOp"]


def test_a_warning_is_silenced_by_its_id_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(StateWarning, match=r"^\[SchedulerNotSaved\] it is lost$") as caught:
        warn("SchedulerNotSaved", "it is lost", StateWarning)
    assert caught[0].filename == __file__
    monkeypatch.setenv("SHARDC_SILENCE", "SchedulerNotSaved")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warn("SchedulerNotSaved", "it is lost", StateWarning)
        warn("ResultMismatch", "strides", StateWarning)
    assert [str(w.message) for w in said] == ["[ResultMismatch] strides"]


@pytest.mark.parametrize("by", [{"category": shardc.ShardcWarning}, {"message": r"\[SchedulerNotSaved\]"}])
def test_pythons_filters_work(by: dict[str, object]) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", **by)
        warn("SchedulerNotSaved", "it is lost", StateWarning)
        warnings.warn("of somebody else", stacklevel=1)
    assert [str(w.message) for w in said] == ["of somebody else"]


@pytest.mark.parametrize(
    "text, problem",
    [
        ("Paded", "which is not the id of a remark or warning; did you mean 'Padded'"),
        ("BadMeshSpec", "cannot be silenced"),
    ],
)
def test_only_what_can_be_silenced_is_taken(text: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_SILENCE", f"Padded,{text}")
    with pytest.raises(SilencedNothing, match=problem):
        check_silenced()
    monkeypatch.setenv("SHARDC_SILENCE", ",".join(silenceable()))
    check_silenced()
