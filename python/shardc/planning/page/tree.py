"""The module tree of a plan's weights, with equal repeated modules folded into one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from math import prod

from shardc.planning.placement import ArgumentPlacement, PlacedArgument
from shardc.report.origin_text import origin_text
from shardc.runtime.check import Json
from shardc.runtime.comm.layout import Leaf
from shardc.runtime.comm.mesh import Mesh

WEIGHTS = ("param", "buffer")


def module_tree(placement: ArgumentPlacement) -> list[Json]:
    """Return the top-level modules and weights as JSON.

    A module has ``name``, ``repeat`` (how many equal modules it stands for), ``children``, ``bytes`` of its
    weights, and ``held_bytes`` (on a device that holds them, with optimizer state). A weight has ``shape``,
    ``dtype``, ``dims`` (for each dim the axes that shard it, major first), ``placed`` as text, and ``why``:
    the origin of its sharding, in the words of :func:`~shardc.report.origin_text.origin_text`.
    In a pipeline both have ``stages``, the stages that hold them or a part of them.
    """
    states: dict[str, list[PlacedArgument]] = {}
    for argument in placement.arguments:
        if argument.leaf.role == "opt_state":
            states.setdefault(argument.leaf.name.rpartition("/")[0], []).append(argument)
    root: dict[str, dict | Json] = {}
    for argument in placement.arguments:
        if argument.leaf.role in WEIGHTS:
            *modules, name = argument.leaf.name.split(".")
            node = root
            for module in modules:
                node = node.setdefault(f"{module}.", {})
            node[name] = _weight(name, argument, states.get(argument.leaf.name, ()), placement.mesh)
    return _children(root)


def _weight(name: str, argument: PlacedArgument, states: Sequence[PlacedArgument], mesh: Mesh) -> Json:
    leaf = argument.leaf
    found: Json = {
        "name": name,
        "shape": list(leaf.shape),
        "dtype": str(leaf.dtype).removeprefix("torch."),
        "dims": [[list(axis) for axis in dim] for dim in leaf.space_dims(mesh)],
        "placed": leaf.placed(mesh),
        "why": origin_text(argument.why, leaf.name, str(list(leaf.shape))),
        **({"padded": list(leaf.padded)} if leaf.padded else {}),
        "bytes": prod(leaf.shape) * leaf.dtype.itemsize,
        "held_bytes": sum(_held_bytes(part.leaf, mesh) for part in (argument, *states)),
    }
    if argument.stages:
        found["stages"] = list(argument.stages)
    others = {part.leaf.placed(mesh) for part in states if part.leaf.shape} - {found["placed"]}
    return {**found, "state": sorted(others)} if others else found


def _held_bytes(leaf: Leaf, mesh: Mesh) -> int:
    return prod(leaf.local_shape(mesh)) * leaf.dtype.itemsize


def _children(node: dict[str, dict | Json]) -> list[Json]:
    """Return weights, and modules (keys with a final dot) with their children; repeated ones are folded."""
    found = [_module(key[:-1], value) if key.endswith(".") else value for key, value in node.items()]
    return list(_folded(found))


def _module(name: str, node: dict[str, dict | Json]) -> Json:
    """Return a module's entry. A module with one child is merged into it.

    The child is a run of equal modules (``layers.0-31``) or a weight (``q_proj.weight``). A module with a
    number as its name is not merged into a weight, so that it can be folded.
    """
    children = _children(node)
    is_run = children[0].get("repeat", 1) > 1
    if len(children) == 1 and (is_run or ("children" not in children[0] and not name.isdecimal())):
        return {**children[0], "name": f"{name}.{children[0]['name']}"}
    found: Json = {"name": name, "repeat": 1, "children": children, **_sums(children)}
    stages = sorted({stage for child in children for stage in child.get("stages", ())})
    return {**found, "stages": stages} if stages else found


def _sums(children: Sequence[Json]) -> Json:
    return {key: sum(child[key] for child in children) for key in ("bytes", "held_bytes")}


def _folded(children: Sequence[Json]) -> Iterator[Json]:
    """Yield children, with numbered neighbours that are equal except for the number folded into ``0-31``."""
    run: list[Json] = []
    for child in children:
        if run and not (_is_numbered(child) and _signature(child) == _signature(run[0])):
            yield _joined(run)
            run = []
        if _is_numbered(child):
            run.append(child)
        else:
            yield child
    if run:
        yield _joined(run)


def _is_numbered(child: Json) -> bool:
    return "children" in child and child["name"].isdecimal()


def _signature(child: Json) -> str:
    """Return what equal modules have in common: all but the number, which ``why`` may contain, too."""
    return json.dumps(child["children"]).replace(f".{child['name']}.", ".*.")


def _joined(run: Sequence[Json]) -> Json:
    if len(run) == 1:
        return run[0]
    return {**run[0], "name": f"{run[0]['name']}-{run[-1]['name']}", "repeat": len(run), **_sums(run)}
