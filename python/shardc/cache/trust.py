"""Whether a folder of programs is the user's own: what lies in it runs in the user's processes."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

ROOT = 0
"""Who may write everything anyway."""


def problem_of(folder: Path) -> str | None:
    """Why other users could put files into ``folder``, in words; None if only this user and root can.

    Looks at the folder and at all above it, of which another user could rename one that is theirs, or that
    all may write to: OpenSSH's rule for keys. A folder with the sticky bit, as ``/tmp``, lets nobody do so.
    ``folder`` holds no links (:meth:`pathlib.Path.resolve`); what is not there yet says nothing.
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
    """Whether an open file is one that only this user and root can have written."""
    return stat.S_ISREG(found.st_mode) and found.st_uid in (os.geteuid(), ROOT) and not _is_shared(found)


def _is_shared(found: os.stat_result) -> bool:
    """Whether other users may write to it."""
    by_group = found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid)
    return bool(by_group or found.st_mode & stat.S_IWOTH)


def _is_private(group: int) -> bool:
    """Whether a group is this user's alone, as distributions make one for each user (and a umask of 002)."""
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
