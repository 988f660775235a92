"""Every public name has a docstring with all of its parameters and an example, which runs."""

from __future__ import annotations

import doctest
import inspect
import io
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "docs"))

from error_pages import PREAMBLE, SCRIPT

import shardc
from shardc.diagnostics.catalogue import errors_by_id, summary
from shardc.tuner.session import SessionResult

NAMES = [name for name in shardc.__all__ if name != "__version__"]
PUBLIC: dict[str, object] = {
    **{name: getattr(shardc, name) for name in NAMES},
    "SessionResult": SessionResult,
}
FRAGMENT = re.compile(r"(Of|The|A|An|In|From|With|To|And) ")
"""How a docstring does not begin that says what a name does or is."""


def described(name: str) -> str:
    return inspect.getdoc(PUBLIC[name]) or ""


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_documented(name: str) -> None:
    text, of = described(name), PUBLIC[name]
    assert text and not FRAGMENT.match(text), f"{name} begins with {text[:40]!r}"
    assert name == "SessionResult" or "\nExample:\n    >>> " in text, f"{name} has no example"
    first = text.partition("\n")[0]
    assert first.endswith((".", ":")) and len(first) <= 106, f"the first line of {name} is no sentence"
    if inspect.isfunction(of):
        missing = [p for p in _parameters(of) if not re.search(rf"^    \*{{0,2}}{p}: ", text, re.MULTILINE)]
        assert not missing, f"{name} does not say what {missing} are"
        assert name == "constrain" or "\nRaises:\n" in text, f"{name} does not say what it raises"


@pytest.mark.parametrize("name", [n for n, of in PUBLIC.items() if isinstance(of, type)])
def test_what_a_public_class_has_is_documented(name: str) -> None:
    for member, function in _members(PUBLIC[name]):
        text = inspect.getdoc(function) or ""
        assert text, f"{name}.{member} has no docstring"
        missing = [p for p in _parameters(function) if f"    {p}: " not in text and f"``{p}``" not in text]
        assert not missing, f"{name}.{member} does not say what {missing} are"


def test_the_page_of_the_api_has_every_name_and_what_examples_begin_with() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text()
    assert PREAMBLE in page
    assert not [name for name in NAMES if not re.search(rf":: {name}\b", page)]


def test_every_error_says_when_it_is_raised() -> None:
    assert not [name for name, class_ in errors_by_id().items() if not summary(class_).endswith((".", ":"))]


@pytest.mark.sampled(1)
@pytest.mark.drawn(10)
@pytest.mark.parametrize("name", PUBLIC)
def test_its_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    given: dict[str, object] = {"Path": Path, "warnings": warnings}
    exec(PREAMBLE, given)
    test = doctest.DocTestParser().get_doctest(described(name), given, name, None, None)
    said = io.StringIO()
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        found = doctest.DocTestRunner(verbose=False).run(test, out=said.write)
    assert found.failed == 0, said.getvalue()


def _parameters(function: object) -> list[str]:
    assert callable(function)
    return [p for p in inspect.signature(function).parameters if p != "self" and not p.startswith("_")]


def _members(class_: object) -> Iterator[tuple[str, object]]:
    """Public methods and properties that the class itself defines."""
    for member, value in vars(class_).items():
        function = value.fget if isinstance(value, property) else getattr(value, "func", value)
        if member == "__call__" or (not member.startswith("_") and inspect.isfunction(function)):
            yield member, function
