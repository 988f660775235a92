"""The JSON schema of clusters, written from the dataclasses."""

from __future__ import annotations

from typing import Any

import yaml

from shardc.cost.cluster.names import READY
from shardc.cost.cluster.schema import cluster_schema


def problems(value: Any, schema: Any, where: str = "") -> list[str]:
    """What of the schema a value misses: as much of JSON Schema as ours uses."""
    if "enum" in schema:
        return [] if value in schema["enum"] else [where]
    kind = schema["type"]
    if kind == "object":
        if not isinstance(value, dict):
            return [where]
        missing = [f"{where}.{key}" for key in schema["required"] if key not in value]
        known = schema["properties"]
        unknown = [f"{where}.{key}" for key in value if key not in known]
        inner = [problems(v, known[k], f"{where}.{k}") for k, v in value.items() if k in known]
        return [*missing, *unknown, *(one for found in inner for one in found)]
    if kind == "array":
        return [found for one in value for found in problems(one, schema["items"], f"{where}[]")]
    if kind == "string":
        return [] if isinstance(value, str) else [where]
    number = float(value)  # YAML 1.1 takes 900e9 for a text
    is_right = (
        number > schema.get("exclusiveMinimum", float("-inf"))
        and number >= schema.get("minimum", float("-inf"))
        and number <= schema.get("maximum", float("inf"))
        and (kind == "number" or number == int(number))
    )
    return [] if is_right else [where]


def test_those_that_are_ready_fit_it() -> None:
    schema = cluster_schema()
    for path in READY.glob("*.yaml"):
        assert not problems(yaml.safe_load(path.read_text()), schema), path


def test_it_says_ranges_choices_and_what_is_needed() -> None:
    schema: Any = cluster_schema()
    level = schema["properties"]["levels"]["items"]
    assert schema["required"] == ["name", "devices", "levels", "library"]
    assert level["required"] == ["name", "ways", "bandwidth_bytes_s", "latency_s"]
    assert level["properties"]["bandwidth_bytes_s"]["exclusiveMinimum"] == 0
    assert level["properties"]["efficiency"]["maximum"] == 1
    assert level["properties"]["wiring"]["items"]["items"] == {"type": "integer", "minimum": 0}
    assert "torus" in level["properties"]["topology"]["enum"]
    assert level["properties"]["ways"]["description"] == "Number of joined parts."
    assert problems({"name": "x", "devices": [], "levels": [], "library": {}}, schema)
    assert problems({"nam": "x"}, schema)
