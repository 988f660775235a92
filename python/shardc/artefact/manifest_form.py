"""Checks that manifest entries have their fields, so that a damaged one is reported before a rank fails."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest

from shardc.artefact.manifest import Manifest
from shardc.runtime.comm.layout import Interleaved, Leaf
from shardc.runtime.kernels.loaders import loader_of

_PORT = {"name": str, "role": str, "shape": list, "dtype": str, "sharding": dict}
Fields = Mapping[str, type | tuple[type, ...]]

ENTRIES: dict[str, Fields] = {
    "mesh": {"name": str, "size": int, "kind": str},
    "arguments": _PORT,
    "results": _PORT,
    "operators": {"name": str},
    "kernels": {"name": str, "calls": int, "ops": list},
    "pipeline": {"name": str, "arguments": list},
    "hyperparameters": {"name": str, "group": int, "key": str, "value": (int, float)},
    "baked": {"group": int, "key": str},
    "files": {"size": int, "sha256": str},
}
"""Fields of the entries in each list of a manifest, with their JSON types."""

TENSORS = ("constants.safetensors", "batches.safetensors")
FILES = ("program.py", "run.py", "plan.json", "levels/3-rank.mlir", *TENSORS)
KERNEL_FILES = ("levels/4-kernel.mlir",)
PIPELINE_FILES = ("levels/3-pipeline.mlir",)
"""Files that a manifest must hash: in every artefact, in one with kernels, and in one with a pipeline."""


def form_problem(manifest: Manifest) -> str | None:
    """Describe the first damaged entry; None if there is none. The manifest must have all of its lists."""
    return next(_problems(manifest), None)


def _problems(manifest: Manifest) -> Iterator[str]:
    for field, expected in ENTRIES.items():
        for label, entry in _entries(field, manifest[field]):
            yield from _entry_problems(label, entry, expected)
    yield from _mesh_problems(manifest["mesh"])
    for field in ("arguments", "results"):
        for label, entry in _entries(field, manifest[field]):
            yield from _port_problems(label, entry)
    yield from _pipeline_problems(manifest)
    planned = manifest.get("peak_bytes", 0)
    if not isinstance(planned, int) or planned < 0:
        yield f"peak_bytes is {planned!r}, not a number of bytes"
    wanted = [*FILES, *(PIPELINE_FILES if manifest["pipeline"] else ())]
    if (loader := loader_of(manifest)) is not None:
        modules = [f"{loader.file}/{entry['name']}.py" for entry in manifest["kernels"]]
        wanted += [*(modules if loader.is_folder else [loader.file]), *KERNEL_FILES]
    yield from (f"files does not list {name}" for name in wanted if name not in manifest["files"])


def _entries(field: str, held: list[Manifest] | dict[str, Manifest]) -> Iterator[tuple[str, Manifest]]:
    numbered = held.items() if isinstance(held, dict) else enumerate(held)
    return ((f"{field}[{key!r}]", entry) for key, entry in numbered)


def _entry_problems(label: str, entry: object, expected: Fields) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{label} is {entry!r}, not an object"
        return
    for key, type_ in expected.items():
        if key not in entry:
            yield f"{label} has no {key!r}"
        elif not isinstance(entry[key], type_) or isinstance(entry[key], bool):
            yield f"{label} has {entry[key]!r} for {key!r}"


def _mesh_problems(axes: list[Manifest]) -> Iterator[str]:
    if not axes:
        yield "mesh has no axes"
    for axis in axes:
        if axis["size"] < 1 or axis["kind"] not in ("space", "time"):
            yield f"mesh axis {axis['name']!r} has size {axis['size']} and kind {axis['kind']!r}"


def _pipeline_problems(manifest: Manifest) -> Iterator[str]:
    known = [[entry["role"], entry["name"]] for entry in manifest["arguments"]]
    for label, entry in _entries("pipeline", manifest["pipeline"]):
        sizes = [axis["size"] for axis in manifest["mesh"] if axis["name"] == entry["name"]]
        ranks = len(entry["arguments"])
        if sizes != [ranks]:
            axis = f"the axis {entry['name']!r} of {sizes or 'no'} ways"
            yield f"{label} has arguments for {ranks} ranks along {axis}"
        unknown = [key for of_rank in entry["arguments"] for key in of_rank if key not in known]
        if unknown:
            yield f"{label} names {unknown[0]!r}, which is not an argument"


def _port_problems(label: str, entry: Manifest) -> Iterator[str]:
    try:
        leaf = Leaf.read(entry)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        yield f"{label} can't be read ({type(error).__name__}: {error})"
        return
    if not all(isinstance(size, int) for size in leaf.shape) or len(leaf.shape) != len(leaf.dims):
        yield f"{label} has shape {entry['shape']} and {len(leaf.dims)} dims in its sharding"
    elif leaf.padded and not _pads(leaf):
        yield f"{label} has shape {entry['shape']} and padded shape {entry['padded']}"
    elif leaf.interleaved is not None and not _has_parts(leaf, leaf.interleaved):
        yield f"{label} has shape {entry['shape']} and is interleaved as {entry['interleaved']}"


def _pads(leaf: Leaf) -> bool:
    """Return whether the padded shape has whole numbers, none smaller than the shape's."""
    pairs = zip_longest(leaf.padded, leaf.shape)
    return all(isinstance(p, int) and n is not None and p >= n for p, n in pairs)


def _has_parts(leaf: Leaf, parts: Interleaved) -> bool:
    """Return whether the parts are multiples of ``ways`` and add up to the dim's size."""
    if not all(isinstance(n, int) and n >= 0 for n in (parts.dim, parts.ways, *parts.sizes)):
        return False
    if parts.ways < 1 or parts.dim >= len(leaf.shape):
        return False
    return sum(parts.sizes) == leaf.shape[parts.dim] and all(n % parts.ways == 0 for n in parts.sizes)
