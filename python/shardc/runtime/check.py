"""Manifest of an artefact, ``shardc.json``, and the check of the folder's files against it."""

import hashlib
import itertools
import json
from pathlib import Path, PurePosixPath
from typing import Any

from .errors import BadArtefact
from .schema.manifest import manifest_problem

Json = dict[str, Any]
"""JSON object: a manifest, or an entry of one."""
STATE_ROLES = ("param", "opt_state", "buffer")
"""Roles of arguments that a step updates: the result of the same role and name is the new value."""
MANIFEST = "shardc.json"
SCHEMA_NAME = "shardc-artefact"
SCHEMA_VERSION = 4
AGAIN = "compile again, or copy the folder again"
SHARED_BYTES = 256 << 20
"""Size in bytes from which on a file is hashed by only one of a host's ranks, at about 1.5 GB/s.

Every rank hashes all smaller files, the code among them.
"""


def read_manifest(folder: Path) -> Json:
    """Read an artefact's manifest and check it against its schema, but not its files. Raises BadArtefact."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text())
    except FileNotFoundError:
        what = "there is no manifest, so this is not an artefact of shardc"
        raise _bad(what, path, "name a folder that `shardc compile` wrote") from None
    except (ValueError, OSError) as error:
        raise _bad(f"the manifest is truncated or not JSON ({error})", path) from None
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if not isinstance(schema, dict) or schema.get("name") != SCHEMA_NAME:
        raise _bad(f"the manifest's schema is {schema!r}, not {SCHEMA_NAME!r}", path)
    version = schema.get("version")
    if version != SCHEMA_VERSION or type(version) is not int:
        what = f"the artefact is of version {version!r}; this runtime reads version {SCHEMA_VERSION}"
        hint = "compile the model again with this shardc, or run it with the runtime inside the folder"
        raise _bad(what, path, hint)
    if (problem := manifest_problem(manifest)) is not None:
        raise _bad(f"the manifest is damaged: {problem}", path)
    return manifest


def check_files(folder: Path, manifest: Json, rank: int = 0, ranks: int = 1) -> None:
    """Compare each file with its size and SHA-256. Raises BadArtefact for the first that differs.

    ``rank`` is one of ``ranks`` that share the work on large files. All must stop if one fails.
    """
    turn = itertools.count()
    for name, entry in manifest["files"].items():
        path = folder / name
        if not is_inside(name):
            raise _bad(f"{name!r} is not the name of a file inside the folder", folder / MANIFEST)
        if not path.is_file():
            raise _bad(f"{name} is missing", path)
        size = path.stat().st_size
        if size != entry["size"]:
            state = "truncated" if size < entry["size"] else "longer than it was written"
            raise _bad(f"{name} is {state}: {size} bytes of {entry['size']}", path)
        is_mine = size < SHARED_BYTES or next(turn) % ranks == rank
        if is_mine and sha256(path) != entry["sha256"]:
            what = "was changed since it was compiled: its SHA-256 differs from the manifest's"
            raise _bad(f"{name} {what}", path)


def is_inside(name: str) -> bool:
    """Return True if a file's name in a manifest leads to a file inside the manifest's folder."""
    path = PurePosixPath(name)
    return str(path) == name != "." and not path.is_absolute() and not {"..", ""} & set(path.parts)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bad(what: str, path: Path, hint: str = AGAIN) -> BadArtefact:
    return BadArtefact(what, str(path), hint)
