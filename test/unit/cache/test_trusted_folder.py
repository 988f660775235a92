"""Attacks on the cache folder: who else could put a program there that this user's processes run?"""

import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from shardc.cache import disk, trust
from shardc.diagnostics.kernels import KernelCacheWarning

NAME = f"graph-{'0' * 32}.json"
SOMEBODY = 12345


class Changed(NamedTuple):
    """What a test says of one file or folder: who owns it, and its mode."""

    owner: int | None = None
    mode: int | None = None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "above" / "cache"))
    return tmp_path / "above" / "cache"


@pytest.fixture
def seen_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Changed], None]:
    """Makes ``stat`` say of a path what only root could make true; modes are made true."""
    owners: dict[int, int] = {}
    real, real_open = os.stat, os.fstat

    def told(found: os.stat_result) -> os.stat_result:
        owner = owners.get(found.st_ino)
        return found if owner is None else os.stat_result([*found[:4], owner, *found[5:10]])

    monkeypatch.setattr(os, "stat", lambda *given, **more: told(real(*given, **more)))
    monkeypatch.setattr(os, "fstat", lambda number: told(real_open(number)))

    def change(path: Path, changed: Changed) -> None:
        if changed.mode is not None:
            path.chmod(changed.mode)
        if changed.owner is not None:
            owners[real(path).st_ino] = changed.owner

    return change


def planted(folder: Path) -> None:
    """What an attacker puts there: whole, with its seal."""
    disk.keep(NAME, b"planted")
    assert disk.read(NAME) == (folder / NAME, b"planted")


ATTACKS = {
    "owned by another user": (".", Changed(owner=SOMEBODY)),
    "writable by all": (".", Changed(mode=0o777)),
    "writable by all, sticky": (".", Changed(mode=0o1777)),
    "writable by a group": (".", Changed(mode=0o770)),
    "below a folder of another user": ("..", Changed(owner=SOMEBODY)),
    "below a folder that all may write to": ("..", Changed(mode=0o777)),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_folder_that_others_can_fill_is_not_used(
    folder: Path, seen_as: Callable[[Path, Changed], None], monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    monkeypatch.setattr(trust, "_is_private", lambda group: False)
    planted(folder)
    part, changed = ATTACKS[attack]
    seen_as((folder / part).resolve(), changed)
    with pytest.warns(KernelCacheWarning, match="SHARDC_CACHE_DIR") as said:
        assert disk.read(NAME) is None
    assert len(said) == 1
    with warnings.catch_warnings():  # it was said, and is not said again
        warnings.simplefilter("error")
        own = disk.keep(NAME, b"own")
        assert disk.read(NAME) == (own, b"own") and disk.find(NAME) == own
        with disk.alone(NAME):
            pass
    assert own.parent != folder and stat.S_IMODE(own.parent.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == [NAME]  # nothing of ours for them to read
    disk.discard(NAME)


def test_a_sticky_folder_above_is_no_danger(folder: Path) -> None:
    folder.parent.mkdir()
    folder.parent.chmod(0o1777)
    planted(folder)


def test_a_group_of_the_users_own_is_nobody_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_is_private", lambda group: True)
    planted(folder)
    folder.chmod(0o770)
    assert disk.read(NAME) is not None


def test_root_has_no_group_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert not trust._is_private(0)


@pytest.mark.parametrize("changed", [Changed(owner=SOMEBODY), Changed(mode=0o666)])
def test_a_file_of_another_user_is_not_read(
    folder: Path,
    seen_as: Callable[[Path, Changed], None],
    monkeypatch: pytest.MonkeyPatch,
    changed: Changed,
) -> None:
    """It may have been put there before the folder was closed to others."""
    monkeypatch.setattr(trust, "_is_private", lambda group: False)
    planted(folder)
    seen_as(folder / NAME, changed)
    assert disk.read(NAME) is None


def test_a_link_is_not_read(folder: Path, tmp_path: Path) -> None:
    planted(folder)
    (folder / NAME).rename(tmp_path / "elsewhere")
    (folder / NAME).symlink_to(tmp_path / "elsewhere")
    assert disk.read(NAME) is None


def test_the_folder_behind_a_link_is_looked_at(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner can turn a link another way between a look and a read: the link is followed once."""
    planted(folder)
    folder.chmod(0o777)
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "link"))
    with pytest.warns(KernelCacheWarning, match="mode 777"):
        assert disk.read(NAME) is None


def test_a_new_folder_is_for_this_user_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        path = disk.keep(NAME, b"")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(part.stat().st_mode) for part in (path, folder, folder.parent)]
    assert modes == [0o600, 0o700, 0o700]


@pytest.mark.parametrize("name", [f"../{NAME}", f"/tmp/{NAME}", "../../etc/passwd", f"{NAME}/../{NAME}"])
def test_a_name_in_an_entry_stays_in_the_folder(folder: Path, name: str) -> None:
    planted(folder)
    (folder.parent / NAME).write_bytes((folder / NAME).read_bytes())
    assert disk.find(name) is None


def test_a_killed_write_leaves_nothing_for_long(folder: Path) -> None:
    planted(folder)
    old, new = folder / f"{NAME}.abcdefgh.part", folder / f"{NAME}.ijklmnop.part"
    users = folder / "thesis.part"
    for path in (old, new, users):
        path.write_bytes(b"half")
    for path in (old, users):
        os.utime(path, (0, 0))
    disk.keep(NAME, b"another")
    assert not old.exists() and new.exists() and users.exists()
