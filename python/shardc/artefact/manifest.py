"""The manifest of an artefact: what its program takes and gives, in JSON."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch_mlir import ir

from shardc import __version__
from shardc.backends.torch.description import describe_program
from shardc.frontend.step.spec import BatchTree, Capture
from shardc.runtime.check import SCHEMA_NAME, SCHEMA_VERSION
from shardc.runtime.torch_private import pytree


@dataclass(frozen=True)
class ManifestFields:
    """What a manifest holds besides what the rank module says itself.

    ``model`` is the fingerprint of the level-1 program. ``hyperparameters`` are {name, group, key, index,
    first_step, value}, ``baked`` {group, key, value}. ``batch`` is the tree of :mod:`shardc.runtime.batch`.
    ``fills`` gives the number that optimizer state without a stored value starts as. ``peak_bytes`` is the
    most that a rank's tensors are planned to take at once, 0 if that is not known.
    """

    model: str
    batch: dict[str, Any]
    hyperparameters: list[dict[str, Any]] = field(default_factory=list)
    baked: list[dict[str, Any]] = field(default_factory=list)
    seed: int = 0
    tied: dict[str, str] = field(default_factory=dict)
    fills: dict[str, float] = field(default_factory=dict)
    peak_bytes: int = 0


def fields_of(
    capture: Capture, optimizer: torch.optim.Optimizer, level1: str, seed: int = 0
) -> ManifestFields:
    """The fields of a captured step whose level-1 text is ``level1``."""
    numbers = [{**asdict(h), "value": h.value(optimizer)} for h in capture.hyperparameters]
    baked = [{"group": g, "key": k, "value": json_value(v)} for (g, k), v in capture.baked.items()]
    names = [spec.name for spec in capture.with_role("opt_state")]
    fills = {name: fill for name in names if (fill := capture.fill_value(name)) is not None}
    batch = describe_batch(capture.batch_tree)
    return ManifestFields(fingerprint(level1), batch, numbers, baked, seed, dict(capture.tied), fills)


def fingerprint(level1: str) -> str:
    """What tells one model's program from another's: the SHA-256 of its level-1 text."""
    return hashlib.sha256(level1.encode()).hexdigest()


def build_manifest(
    module: ir.Module, fields: ManifestFields, files: Mapping[str, Any], target: str
) -> dict[str, Any]:
    """The manifest of a module of level 3 or 4. ``files`` maps each file's path to its size and SHA-256,
    ``target`` says what its kernels are for.
    """
    program = describe_program(module)
    for entry in program["arguments"]:
        if entry["name"] in fields.fills:
            entry["fill"] = fields.fills[entry["name"]]
    return {
        "schema": {"name": SCHEMA_NAME, "version": SCHEMA_VERSION},
        "made_with": {"shardc": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "model": fields.model,
        **program,
        "target": target if program["kernels"] else "",
        "hyperparameters": fields.hyperparameters,
        "baked": fields.baked,
        "batch": fields.batch,
        "seed": fields.seed,
        "peak_bytes": fields.peak_bytes,
        "tied": fields.tied,
        "files": dict(files),
    }


def describe_batch(tree: BatchTree) -> dict[str, Any]:
    """A batch's tree as :mod:`shardc.runtime.batch` reads it."""
    names = iter(tree.names)
    leaves = [
        {"constant": tree.constants[i]} if i in tree.constants else {"leaf": next(names)}
        for i in range(tree.spec.num_leaves)
    ]
    return _describe(pytree.tree_unflatten(list(map(_Leaf, leaves)), tree.spec))


@dataclass
class _Leaf:
    """A leaf's description, while it stands in the batch's own containers."""

    entry: dict[str, Any]


def _describe(part: Any) -> dict[str, Any]:
    if isinstance(part, _Leaf):
        value = part.entry.get("constant")
        return part.entry if _is_json(value) else {"repr": repr(value)}
    if isinstance(part, Mapping):
        return {"mapping": {str(key): _describe(value) for key, value in part.items()}}
    return {"sequence": [_describe(value) for value in part]}


def _is_json(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def json_value(value: Any) -> Any:
    """A setting of an optimizer as JSON holds it: tensors as numbers, tuples as lists, anything else by its
    repr.
    """
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [json_value(v) for v in value]
    return value if _is_json(value) else repr(value)
