"""Environment variables are read in one place, and one page has them all."""

import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "docs"))

from write_reference import environment_page

from shardc.environment import CACHE_DIR, TARGET
from shardc.runtime.environment import SYMMETRIC_BYTES, TIMEOUT_S, changed, child_environment
from shardc.runtime.errors import BadVariable

ROOT = Path(__file__).resolve().parents[2]
HOMES = {"python/shardc/environment.py", "python/shardc/runtime/environment.py"}
PRODUCT = [
    path
    for folder in ("python", "dialects", "passes", "backends")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.resolve() == path
]


def test_no_other_file_reads_or_changes_the_environment() -> None:
    direct = re.compile(r"\bos\.(environ|getenv|putenv|unsetenv)\b|from os import")
    wrong = {str(p.relative_to(ROOT)) for p in PRODUCT if direct.search(p.read_text())} - HOMES
    assert not wrong, "declare the variable in shardc/environment.py, or in runtime/environment.py"


def test_a_page_has_every_variable() -> None:
    """Those of the product in the reference, those of the tests in CONTRIBUTING."""
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    for folder, page in (("python", environment_page()), ("test", environment_page() + contributing)):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name in re.findall(r"\bSHARDC_[A-Z_]*[A-Z]\b", path.read_text()):
                assert f"`{name}`" in page, f"{path.relative_to(ROOT)}: {name}"


def test_a_value_of_another_kind_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_TIMEOUT_S", "soon")
    with pytest.raises(BadVariable, match=r"SHARDC_TIMEOUT_S is 'soon'(.|\n)*seconds"):
        TIMEOUT_S.get()


def test_an_empty_path_is_none_and_a_default_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", "")
    monkeypatch.delenv("SHARDC_SYMMETRIC_BYTES", raising=False)
    monkeypatch.setenv("SHARDC_TARGET", "x86_64 avx2 fma")
    assert CACHE_DIR.get() is None
    assert SYMMETRIC_BYTES.get() == 1 << 20
    assert TARGET.get() == ["x86_64", "avx2", "fma"]


def test_changes_are_undone_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_TARGET", "before")
    monkeypatch.delenv("SHARDC_LINKER", raising=False)
    with pytest.raises(KeyError), changed({"SHARDC_TARGET": None, "SHARDC_LINKER": "ld"}):
        assert "SHARDC_TARGET" not in child_environment() and child_environment()["SHARDC_LINKER"] == "ld"
        raise KeyError
    assert child_environment()["SHARDC_TARGET"] == "before" and "SHARDC_LINKER" not in child_environment()
    assert "SHARDC_TARGET" not in child_environment(SHARDC_TARGET=None)
