"""Checks that a folder of programs is the user's own, since its files run in the user's processes."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

ROOT = 0
"""Owner of files that is always trusted: root can write everywhere."""


def problem_of(folder: Path) -> str | None:
    """Describe why other users could put files into ``folder``; None if only this user and root can.

    Checks the folder and all of its parents, as OpenSSH does for keys: whoever owns or can write to a parent
    can rename what is in it. The sticky bit, as on ``/tmp``, prevents that. ``folder`` must have its links
    resolved (:meth:`pathlib.Path.resolve`). Folders that do not exist yet are skipped.
    """
    for part in (folder, *folder.parents):
        try:
            found = part.stat()
        except OSError:
            continue
        if found.st_uid not in (os.geteuid(), ROOT):
            return f"{_named(part, folder)}belongs to {_user(found.st_uid)}"
        if _is_shared(found) and (part == folder or not found.st_mode & stat.S_ISVTX):
            return f"{_named(part, folder)}may be written to by other users (mode {found.st_mode & 0o7777:o})"
    return None


def is_own_file(found: os.stat_result) -> bool:
    """Return whether only this user and root can have written an open file."""
    return stat.S_ISREG(found.st_mode) and found.st_uid in (os.geteuid(), ROOT) and not _is_shared(found)


def _is_shared(found: os.stat_result) -> bool:
    """Return whether other users can write to it."""
    by_group = found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid)
    return bool(by_group or found.st_mode & stat.S_IWOTH)


def _is_private(group: int) -> bool:
    """Return whether a group has this user as its only member, as distributions create it for each user."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    is_named = user.pw_uid != ROOT and (found.gr_name, found.gr_gid) == (user.pw_name, user.pw_gid)
    return is_named and set(found.gr_mem) <= {user.pw_name}


def _named(part: Path, folder: Path) -> str:
    return "it " if part == folder else f"{part}, above it, "


def _user(number: int) -> str:
    with suppress(KeyError):
        return f"the user {pwd.getpwuid(number).pw_name}"
    return f"the user {number}"
