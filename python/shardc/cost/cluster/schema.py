"""JSON schema of cluster files, generated from the dataclasses for completion and checks in editors."""

from __future__ import annotations

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.facts import Facts, Kind, kinds, texts

_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def cluster_schema() -> dict[str, object]:
    """Return the schema as plain data."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A cluster of shardc"}
    return {**head, **_object(Cluster)}


def _object(of: type[Facts]) -> dict[str, object]:
    says, fields = texts(of), kinds(of)
    summary = (of.__doc__ or "").strip().partition("\n")[0].replace("``", "")
    return {
        "description": summary,
        "type": "object",
        "properties": {name: _described(_value(kind), says.get(name, "")) for name, kind in fields.items()},
        "required": [name for name, kind in fields.items() if kind.is_required],
        "additionalProperties": False,
    }


def _described(value: dict[str, object], says: str) -> dict[str, object]:
    return {"description": says.replace("``", ""), **value} if says else value


def _value(kind: Kind) -> dict[str, object]:
    one = _one(kind)
    for _ in range(kind.is_list + 2 * kind.is_table):
        one = {"type": "array", "items": one}
    return one


def _one(kind: Kind) -> dict[str, object]:
    if issubclass(kind.type, Facts):
        return _object(kind.type)
    if kind.choices:
        return {"enum": list(kind.choices)}
    bound = kind.bound
    limits: dict[str, object] = {}
    if bound is not None:
        named = {"exclusiveMinimum": bound.above, "minimum": bound.at_least, "maximum": bound.at_most}
        limits = {name: limit for name, limit in named.items() if limit is not None}
    return {"type": _TYPES[kind.type], **limits}
