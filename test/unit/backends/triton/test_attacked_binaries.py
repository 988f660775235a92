"""Binaries of an artefact's Triton kernels: they stay in the artefact, and name no file outside of it."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardc.runtime.kernels import triton_binaries
from shardc.runtime.kernels.bad_modules import BadModules
from shardc.runtime.kernels.triton_binaries import KEY, offer

triton = pytest.importorskip("triton", reason="Triton is not installed")


@pytest.fixture
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Triton's cache of the user, and nothing of an earlier test's."""
    monkeypatch.setattr(triton_binaries, "_entries", {})
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path / "user"))
    monkeypatch.setattr(triton.knobs.cache, "manager_class", None)
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


def entry(folder: Path, **changes: Any) -> Path:
    """A binary of an artefact, with its key."""
    place = folder / "cache" / "ABC"
    place.mkdir(parents=True)
    (place / "kernel.json").write_text("{}")
    (place / "kernel.cubin").write_bytes(b"the attack")
    said = {"triton": triton.__version__, "metadata": "kernel.json", "rest": "-source-options"} | changes
    (place / KEY).write_text(json.dumps(said))
    return folder / "cache"


def managed(rest: str) -> Any:
    """What Triton asks for a kernel's files."""
    key = hashlib.sha256((triton.runtime.cache.triton_key() + rest).encode()).hexdigest()
    return triton.runtime.cache.get_cache_manager(key)


def test_a_binary_stays_in_the_artefact(tmp_path: Path, user_cache: Path) -> None:
    offer(entry(tmp_path / "kernels"))
    found = managed("-source-options").get_group("kernel.json")
    place = tmp_path / "kernels" / "cache" / "ABC"
    assert found == {name: str(place / name) for name in ("kernel.json", "kernel.cubin")}
    assert list(user_cache.iterdir()) == []


def test_what_is_compiled_here_is_kept_as_ever(tmp_path: Path, user_cache: Path) -> None:
    offer(entry(tmp_path / "kernels"))
    other = managed("-another")
    assert other.get_group("kernel.json") is None
    path = other.put(b"code", "kernel.cubin")
    other.put_group("kernel.json", {"kernel.cubin": path})
    assert Path(path).read_bytes() == b"code" and user_cache in Path(path).parents
    assert managed("-another").get_group("kernel.json") == {"kernel.cubin": path}
    assert managed("-another").get_file("kernel.cubin") == path


def test_another_process_finds_nothing_of_it(tmp_path: Path, user_cache: Path) -> None:
    offer(entry(tmp_path / "kernels"))
    managed("-source-options").get_group("kernel.json")
    digest = hashlib.sha256((triton.runtime.cache.triton_key() + "-source-options").encode()).digest()
    name = base64.b32encode(digest).decode().rstrip("=")
    asked = (
        f"from triton.runtime.cache import FileCacheManager as M; print(M({name!r}).get_group('kernel.json'))"
    )
    environment = {"TRITON_CACHE_DIR": str(user_cache), "PATH": "/usr/bin", "HOME": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True)
    assert said.stdout == "None\n", said.stderr


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata": "../../../outside.json"},
        {"metadata": "/etc/passwd"},
        {"metadata": ""},
        {"metadata": ".."},
        {"metadata": "nothing.json"},
        {"metadata": 5},
        {"rest": None},
        {"triton": []},
    ],
)
def test_a_key_names_a_file_beside_it(tmp_path: Path, user_cache: Path, changes: dict[str, Any]) -> None:
    (tmp_path / "outside.json").write_text("{}")
    with pytest.raises(BadModules, match="compile again"):
        offer(entry(tmp_path / "kernels", **changes))
    assert list(user_cache.iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", "no JSON", "{}"])
def test_a_key_that_does_not_parse(tmp_path: Path, user_cache: Path, text: str) -> None:
    binaries = entry(tmp_path / "kernels")
    (binaries / "ABC" / KEY).write_text(text)
    with pytest.raises(BadModules, match="does not parse"):
        offer(binaries)
