"""The manifest of an artefact: a JSON description of its program's arguments and results."""

import hashlib
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import torch
from torch.optim import Optimizer
from torch_mlir import ir

from shardc.backends.torch.description import describe_program
from shardc.frontend.step.spec import BatchTree, Capture
from shardc.runtime.check import SCHEMA_NAME, SCHEMA_VERSION, Json
from shardc.runtime.hyper import is_json, json_value
from shardc.runtime.torch_private import pytree

Manifest = dict[str, Any]
"""JSON object: a manifest, or one of its entries."""


@dataclass(frozen=True)
class ManifestFields:
    """Fields of a manifest that the rank module itself does not give.

    ``model`` is the fingerprint of the level-1 program. ``hyperparameters`` are {name, group, key, index,
    first_step, value}, ``baked`` {group, key, value}. ``batch`` is the tree of :mod:`shardc.runtime.batch`.
    ``fills`` maps optimizer state that has no stored value to the number that it starts as. ``peak_bytes`` is
    the planned peak memory of a rank's tensors, 0 if it is not known.
    """

    model: str
    batch: Manifest
    hyperparameters: list[Manifest] = field(default_factory=list)
    baked: list[Manifest] = field(default_factory=list)
    seed: int = 0
    tied: dict[str, str] = field(default_factory=dict)
    fills: dict[str, float] = field(default_factory=dict)
    peak_bytes: int = 0


def fields_of(capture: Capture, optimizer: Optimizer, level1: str, seed: int = 0) -> ManifestFields:
    """Return the fields for a captured step whose level-1 text is ``level1``."""
    numbers = [{**asdict(h), "value": h.value(optimizer)} for h in capture.hyperparameters]
    baked = [{"group": g, "key": k, "value": json_value(v)} for (g, k), v in capture.baked.items()]
    names = [spec.name for spec in capture.with_role("opt_state")]
    fills = {name: fill for name in names if (fill := capture.fill_value(name)) is not None}
    batch = describe_batch(capture.batch_tree)
    return ManifestFields(fingerprint(level1), batch, numbers, baked, seed, dict(capture.tied), fills)


def fingerprint(level1: str) -> str:
    """Return the SHA-256 of a level-1 text, which identifies a model's program."""
    return hashlib.sha256(level1.encode()).hexdigest()


def is_program(capture: Capture, other: Capture, fields: ManifestFields) -> bool:
    """Return whether ``capture`` has the program and constants of ``other``, whose ``fields`` are given."""
    level1 = capture.module.operation.get_asm(assume_verified=True)
    held, known = capture.constants, other.constants
    same = held.keys() == known.keys() and all(torch.equal(held[name], known[name]) for name in held)
    return same and fingerprint(level1) == fields.model


def build_manifest(module: ir.Module, fields: ManifestFields, target: str) -> Manifest:
    """Return the manifest of a module of level 3 or 4 for ``target``, without the list of files."""
    return manifest_of(describe_program(module), fields, target)


def manifest_of(description: Json, fields: ManifestFields, target: str) -> Manifest:
    """Return the manifest of a program that :func:`describe_program` described."""
    program = {**description, "arguments": [dict(entry) for entry in description["arguments"]]}
    for entry in program["arguments"]:
        if entry["name"] in fields.fills:
            entry["fill"] = fields.fills[entry["name"]]
    return {
        "schema": {"name": SCHEMA_NAME, "version": SCHEMA_VERSION},
        "made_with": {
            "shardc": version("shardc"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "model": fields.model,
        **program,
        "target": target if program["kernels"] else "",
        "hyperparameters": fields.hyperparameters,
        "baked": fields.baked,
        "batch": fields.batch,
        "seed": fields.seed,
        "peak_bytes": fields.peak_bytes,
        "tied": fields.tied,
        "files": {},
    }


def describe_batch(tree: BatchTree) -> Manifest:
    """Return a batch's tree in the form that :mod:`shardc.runtime.batch` reads."""
    names = iter(tree.names)
    leaves = [
        _Leaf({"constant": tree.constants[i]} if i in tree.constants else {"leaf": next(names)})
        for i in range(tree.spec.num_leaves)
    ]
    return _describe(pytree.tree_unflatten(leaves, tree.spec))


@dataclass
class _Leaf:
    """Placeholder for a leaf's description inside the batch's own containers."""

    entry: Manifest


def _describe(part: object) -> Manifest:
    """Return the description of a leaf, or of a container and what is inside."""
    if isinstance(part, _Leaf):
        value = part.entry.get("constant")
        return part.entry if is_json(value) else {"repr": repr(value)}
    if isinstance(part, Mapping):
        return {"mapping": {str(key): _describe(value) for key, value in part.items()}}
    assert isinstance(part, Iterable)
    return {"sequence": [_describe(value) for value in part]}
