"""Plans as JSON, written by one compile and read by another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from shardc.diagnostics.passes.plan import BadPlanFile
from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.options.plan_file import SCHEMA, VERSION, load_plan_file
from shardc.passes.plan.plan import Argument, Entry, Plan


def fingerprint(arguments: Sequence[Argument]) -> str:
    """Return a hash that identifies a step: of the roles, names and shapes of its arguments."""
    text = json.dumps([[a.role, a.name, list(a.shape)] for a in arguments])
    return hashlib.sha256(text.encode()).hexdigest()


def plan_to_json(
    plan: Plan, mesh: Mesh, arguments: Sequence[Argument], cluster: str = ""
) -> dict[str, object]:
    """Return the plan as plain data, with the name of its cluster and with searched shardings of calls."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "model": fingerprint(arguments),
        "mesh": [a.row for a in mesh.axes],
        "text": plan.text,
        "pipeline": plan.pipeline,
        **({"cluster": cluster} if cluster else {}),
        **({"attention": [*map(list, plan.attention.items())]} if plan.attention else {}),
        **({"cuts": plan.cuts} if plan.cuts is not None else {}),
        "entries": [
            {"role": role, "name": name, **asdict(entry)} for (role, name), entry in plan.entries.items()
        ],
    }


def read_plan(path: Path, mesh: Mesh, arguments: Sequence[Argument]) -> Plan:
    """Read a saved plan for this step on this mesh. Raises BadPlanFile if it does not fit them."""
    data: dict[str, Any] = {**load_plan_file(path)}
    if data.get("model") != fingerprint(arguments):
        raise BadPlanFile(path=path, problem="it was made for another model, optimizer or batch")
    try:
        saved = Mesh(tuple(MeshAxis.of_row(*axis) for axis in data["mesh"]))
        plan = replace(plan_of_json(data), cuts=data.get("cuts"))
    except (KeyError, TypeError, ValueError) as error:
        raise BadPlanFile(path=path, problem=f"a field is missing or of the wrong kind ({error!r})") from None
    if saved != mesh:
        shown = ", ".join(f"{a.name}={a.trips or a.size}" for a in saved.axes)
        raise BadPlanFile(path=path, problem=f"it was made for the mesh {shown}")
    return plan


def plan_of_json(data: Mapping[str, Any]) -> Plan:
    """Read the data of :func:`plan_to_json` without ``cuts``, which hold for one program only.

    Raises KeyError, TypeError, ValueError.
    """
    entries = {(e["role"], e["name"]): _entry(e) for e in data["entries"]}
    attention = {str(axis): str(how) for axis, how in data.get("attention", ())}
    return Plan(str(data["text"]), entries, str(data.get("pipeline", "")), attention)


def _entry(e: Mapping[str, Any]) -> Entry:
    dims = None if e["dims"] is None else tuple(tuple(map(str, d)) for d in e["dims"])
    refine = tuple((int(p), str(a), int(d)) for p, a, d in e["refine"])
    return Entry(dims, bool(e["closed"]), refine, str(e["why"]))
