"""Schema of a manifest: the kind and range of each field, and consistency between fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

import torch

from . import checks as s

Json = dict[str, Any]

ROLES = ("param", "opt_state", "buffer", "hyper", "input", "seed", "constant")
OVERFLOW = "overflow"
"""Role of the result that counts rows without room at their experts. If it is not 0, state did not change."""
RESULT_ROLES = ("loss", "output", "param", "opt_state", "buffer", OVERFLOW)
DTYPES = tuple(name for name, value in vars(torch).items() if isinstance(value, torch.dtype))
HASH = s.text("[0-9a-f]{64}", "a SHA-256")
NAME = s.text(r"[A-Za-z_]\w*", "a name")
SIZES = s.items(s.integer())
AXIS = s.row(s.text(), s.integer(1), s.integer(1))
"""(Sub-)axis of the mesh: its name, the product of the sizes before it, its size."""


def _port(*roles: str) -> s.Check:
    required = {
        "name": s.text(),
        "role": s.choice(*roles),
        "shape": SIZES,
        "dtype": s.choice(*DTYPES),
        "sharding": s.record(
            {"dims": s.items(s.items(AXIS)), "partial": s.items(s.row(s.text("[a-z_]+"), AXIS))}
        ),
    }
    stored = s.record({"dim": s.integer(), "ways": s.integer(1), "sizes": SIZES})
    optional = {"fill": s.number, "padded": SIZES, "interleaved": stored, "share": s.text()}
    return s.record(required, optional)


def _batch(where: str, value: Any) -> Iterator[str]:
    """Check a tree of objects with one key each: see :mod:`shardc.runtime.batch`."""
    kinds: dict[str, s.Check] = {
        "mapping": s.mapping(_batch, s.anything),
        "sequence": s.items(_batch),
        "leaf": s.text(),
        "constant": s.anything,
        "repr": s.text(),
    }
    if not isinstance(value, dict) or len(value) != 1:
        yield f"{where} is {value!r:.60}, not an object of one key"
        return
    ((kind, content),) = value.items()
    if kind not in kinds:
        yield f"{where} has {kind!r}, which is unknown"
    else:
        yield from kinds[kind](f"{where}.{kind}", content)


_CHECK = s.record(
    {
        "schema": s.record({"name": s.text(), "version": s.integer(1)}),
        "made_with": s.record({"shardc": s.text(), "torch": s.text(), "python": s.text()}),
        "model": HASH,
        "mesh": s.items(
            s.record(
                {"name": s.text(), "size": s.integer(1), "kind": s.choice("space", "time")},
                {"trips": s.items(s.integer(1), 1)},
            ),
            1,
        ),
        "arguments": s.items(_port(*ROLES)),
        "results": s.items(_port(*RESULT_ROLES), 1),
        "operators": s.items(s.record({"name": s.text(r"\w+::\w+(\.\w+)?", "an operator")})),
        "kernels": s.items(
            s.record(
                {"name": s.text(r"[A-Za-z_]\w*", "a name"), "calls": s.integer(1), "ops": s.items(s.text())}
            )
        ),
        "pipeline": s.items(
            s.record({"name": s.text(), "arguments": s.items(s.items(s.row(s.choice(*ROLES), s.text())), 1)}),
            most=1,
        ),
        "target": s.text(".*"),
        "hyperparameters": s.items(
            s.record(
                {
                    "name": s.text(),
                    "group": s.integer(),
                    "key": s.text(),
                    "index": s.nullable(s.integer()),
                    "first_step": s.nullable(s.number),
                    "value": s.number,
                }
            )
        ),
        "baked": s.items(s.record({"group": s.integer(), "key": s.text(), "value": s.anything})),
        "batch": _batch,
        "seed": s.integer(-s.INT64 - 1),
        "peak_bytes": s.integer(),
        "tied": s.mapping(s.text()),
        "files": s.mapping(s.record({"size": s.integer(), "sha256": HASH})),
    }
)


def manifest_problem(manifest: object) -> str | None:
    """Return text on the first problem of a manifest; None if it is valid."""
    found = s.first_problem(_CHECK, manifest)
    return found or next(_misfits(manifest), None)  # pyright: ignore[reportArgumentType]


def _misfits(manifest: Json) -> Iterator[str]:
    """Yield inconsistencies between fields of a manifest whose fields are valid by themselves."""
    sizes = {axis["name"]: axis["size"] for axis in manifest["mesh"]}
    if len(sizes) < len(manifest["mesh"]):
        yield "two axes of mesh have one name"
    if prod(sizes.values()) > s.INT64:
        yield "mesh has more devices than a number of 64 bits holds"
    for field in ("arguments", "results"):
        for number, port in enumerate(manifest[field]):
            yield from _port_misfits(f"{field}[{number}]", port, sizes)
        keys = Counter((port["role"], port["name"]) for port in manifest[field])
        yield from (f"{field} has {role} {name!r} twice" for (role, name), n in keys.items() if n > 1)
    yield from _name_misfits(manifest)
    if bool(manifest["target"]) != bool(manifest["kernels"]):
        yield f"target is {manifest['target']!r}, and there are {len(manifest['kernels'])} kernels"


def _port_misfits(where: str, port: Json, sizes: dict[str, int]) -> Iterator[str]:
    dims = port["sharding"]["dims"]
    if len(dims) != len(port["shape"]):
        yield f"{where} has shape {port['shape']} and {len(dims)} dims in its sharding"
    used = [axis for dim in dims for axis in dim] + [axis for _, axis in port["sharding"]["partial"]]
    for name, before, size in used:
        if sizes.get(name, 0) % (before * size) or name not in sizes:
            yield f"{where} is sharded by {[name, before, size]}, which the mesh does not have"
    shape, padded = port["shape"], port.get("padded", port["shape"])
    if len(padded) != len(shape) or any(p < n for p, n in zip(padded, shape, strict=True)):
        yield f"{where} has shape {shape} and padded shape {padded}"
        return
    for n, dim in zip(padded, dims, strict=False):
        if n % prod(size for _, _, size in dim):
            yield f"{where} has a dim of {n} that {dim} do not divide"
    stored = port.get("interleaved")
    if stored is not None and not _has_parts(stored, shape):
        yield f"{where} has shape {shape} and is interleaved as {stored}"


def _has_parts(stored: Json, shape: list[int]) -> bool:
    """Return True if the parts divide into equal blocks, and add up to the dim."""
    dim, ways, sizes = stored["dim"], stored["ways"], stored["sizes"]
    return dim < len(shape) and sum(sizes) == shape[dim] and all(n % ways == 0 for n in sizes)


def _name_misfits(manifest: Json) -> Iterator[str]:
    """Yield names that are missing, or that refer to nothing."""
    named = {role: {a["name"] for a in manifest["arguments"] if a["role"] == role} for role in ROLES}
    leaves, hyper = list(_leaves(manifest["batch"])), [e["name"] for e in manifest["hyperparameters"]]
    for field, names, role in (("batch", leaves, "input"), ("hyperparameters", hyper, "hyper")):
        if lacking := sorted(named[role] - set(names)):
            yield f"{field} lacks {lacking[0]!r}, which the program takes"
        yield from (f"{field} has {name!r} twice" for name, n in Counter(names).items() if n > 1)
    yield from _index_misfits(manifest["hyperparameters"])
    for alias, name in manifest["tied"].items():
        if name not in named["param"] | named["buffer"]:
            yield f"tied[{alias!r}] is {name!r}, which is not a parameter"
    loss = [r for r in manifest["results"] if r["role"] == "loss"]
    if len(loss) != 1:
        yield f"results has {len(loss)} losses"


def _index_misfits(entries: list[Json]) -> Iterator[str]:
    """Yield settings with wrong indices.

    A setting is one number, or a tuple (``betas``) with each index once.
    """
    indices: dict[tuple[int, str], list[int | None]] = {}
    for entry in entries:
        indices.setdefault((entry["group"], entry["key"]), []).append(entry["index"])
    for (group, key), found in indices.items():
        if len(set(found)) < len(found) or (None in found and len(found) > 1):
            yield f"hyperparameters has {key!r} of group {group} with the indices {found}"


def _leaves(tree: Json) -> Iterator[str]:
    ((kind, content),) = tree.items()
    if kind == "leaf":
        yield content
    elif kind in ("mapping", "sequence"):
        for part in content.values() if kind == "mapping" else content:
            yield from _leaves(part)
