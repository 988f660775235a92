"""The manifest of an artefact, ``shardc.json``, and whether the folder is what it says."""

import hashlib
import json
from pathlib import Path
from typing import Any

from .errors import BadArtefact

Json = dict[str, Any]
"""A JSON object: a manifest, or an entry of one."""
STATE_ROLES = ("param", "opt_state", "buffer")
"""Roles of arguments that a step updates: the result of the same role and name is the new value."""
MANIFEST = "shardc.json"
SCHEMA_NAME = "shardc-artefact"
SCHEMA_VERSION = 4
AGAIN = "compile again, or copy the folder again"
WHOLE_HASH_BYTES = 256 << 20
"""Larger files are checked for their size alone at every start: hashing takes a second for each 1.5 GB."""

FIELDS = {
    "mesh": list,
    "arguments": list,
    "results": list,
    "operators": list,
    "kernels": list,
    "pipeline": list,
    "target": str,
    "hyperparameters": list,
    "baked": list,
    "batch": dict,
    "seed": int,
    "tied": dict,
    "files": dict,
    "model": str,
}
"""What a manifest must hold, and the JSON type of each."""


def read_manifest(folder: Path) -> Json:
    """The manifest of an artefact, its form checked, its files not. Raises BadArtefact."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text())
    except FileNotFoundError:
        what = "there is no manifest, so this is no artefact of shardc"
        raise _bad(what, path, "name a folder that `shardc compile` wrote") from None
    except (ValueError, OSError) as error:
        raise _bad(f"the manifest is truncated or no JSON ({error})", path) from None
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if not isinstance(schema, dict) or schema.get("name") != SCHEMA_NAME:
        raise _bad(f"the manifest's schema is {schema!r}, not {SCHEMA_NAME!r}", path)
    version = schema.get("version")
    if version != SCHEMA_VERSION:
        what = f"the artefact is of version {version!r}; this runtime reads version {SCHEMA_VERSION}"
        hint = "compile the model again with this shardc, or run it with the runtime inside the folder"
        raise _bad(what, path, hint)
    for field, type_ in FIELDS.items():
        if not isinstance(manifest.get(field), type_):
            raise _bad(f"the manifest's field {field!r} is missing or not of type {type_.__name__}", path)
    return manifest


def check_files(folder: Path, manifest: Json) -> None:
    """Compare each file with its size and SHA-256. Raises BadArtefact for the first that differs."""
    for name, entry in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise _bad(f"{name} is missing", path)
        size = path.stat().st_size
        if size != entry["size"]:
            state = "truncated" if size < entry["size"] else "longer than it was written"
            raise _bad(f"{name} is {state}: {size} bytes of {entry['size']}", path)
        if size <= WHOLE_HASH_BYTES and sha256(path) != entry["sha256"]:
            what = "was changed since it was compiled: its SHA-256 differs from the manifest's"
            raise _bad(f"{name} {what}", path)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bad(what: str, path: Path, hint: str = AGAIN) -> BadArtefact:
    return BadArtefact(what, str(path), hint)
