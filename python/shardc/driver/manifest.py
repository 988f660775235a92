"""The manifest of an artefact: what its program takes and gives, in JSON."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch_mlir import ir

from shardc import __version__
from shardc.backends.body.extract import kernel_name, kernels
from shardc.backends.cpu.target import target
from shardc.backends.torch.emit import step_function
from shardc.dialects.aten.call import target_name
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.interleaving import ATTRIBUTE as INTERLEAVED
from shardc.dialects.dist.interleaving import Interleaving
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.dialects.pipe.rank_function import pipeline_axis, rank_functions
from shardc.frontend.spec import BatchTree, Capture
from shardc.runtime.check import SCHEMA_NAME, SCHEMA_VERSION

OUR_NAMESPACES = ("aten", "prims", "shardc")
"""Operators that are there wherever torch and the runtime are."""


@dataclass(frozen=True)
class ManifestFields:
    """What a manifest holds besides what the rank module says itself.

    ``model`` is the fingerprint of the level-1 program. ``hyperparameters`` are {name, group, key, index, first_step,
    value}, ``baked`` {group, key, value}. ``batch`` is the tree of :mod:`shardc.runtime.batch`. ``fills`` gives the
    number that optimizer state without a stored value starts as. ``peak_bytes`` is the most that a rank's tensors are
    planned to take at once, 0 if that is not known.
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
    module: ir.Module, fields: ManifestFields, files: Mapping[str, Any], gpu: str = ""
) -> dict[str, Any]:
    """The manifest of a module of level 3 or 4. ``files`` maps each file's path to its size and SHA-256.

    ``gpu`` is the target of its kernels, where these are not for this machine's CPU.
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
        "target": (gpu or target()) if program["kernels"] else "",
        "hyperparameters": fields.hyperparameters,
        "baked": fields.baked,
        "batch": fields.batch,
        "seed": fields.seed,
        "peak_bytes": fields.peak_bytes,
        "tied": fields.tied,
        "files": dict(files),
    }


def describe_program(module: ir.Module) -> dict[str, Any]:
    """What a manifest says of a module of level 3 or 4 alone: its mesh, arguments, results, custom operators and
    kernels, and of a pipeline what each of its ranks takes."""
    mesh = read_mesh(module)
    if mesh is None:
        raise ValueError("the module has no dist.mesh: it is not at level 3")
    codec = ShardingCodec(module.context, mesh)
    functions = rank_functions(module) or [step_function(module)]
    arguments = [list(_edges(f, "arg_attrs", f.regions[0].blocks[0].arguments, codec)) for f in functions]
    results = [list(_edges(f, "res_attrs", _returned(f), codec)) for f in functions]
    axis = pipeline_axis(module)
    return {
        "mesh": _mesh(mesh),
        "arguments": _merged(arguments),
        "results": _merged(results),
        "operators": [{"name": name} for name in sorted(_custom_operators(module.body))],
        "kernels": describe_kernels(module),
        "pipeline": []
        if axis is None
        else [{"name": axis, "arguments": [[_key(e) for e in of] for of in arguments]}],
    }


def _returned(function: ir.Operation) -> list[ir.Value]:
    return list(list(function.regions[0].blocks[0].operations)[-1].operation.operands)


def _merged(entries: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The arguments or results of all ranks of a pipeline, each once."""
    return list({tuple(_key(entry)): entry for of_rank in entries for entry in of_rank}.values())


def _key(entry: dict[str, Any]) -> list[str]:
    return [entry["role"], entry["name"]]


def describe_kernels(module: ir.Module) -> list[dict[str, Any]]:
    """The distinct kernels of a level-4 module: name, how many calls the program has,
    and the ops that each stands for.
    """
    found: dict[str, dict[str, Any]] = {}
    for op in kernels(module):
        ops = [ir.StringAttr(name).value for name in op.attributes["kern.ops"]]
        entry = found.setdefault(kernel_name(op), {"name": kernel_name(op), "calls": 0, "ops": ops})
        entry["calls"] += 1
    return list(found.values())


def _custom_operators(block: ir.Block) -> set[str]:
    """The operators called in a block, loops included, that torch and the runtime do not bring: ``mylib::row_norm``."""
    found: set[str] = set()
    for op in block.operations:
        op = op.operation
        for region in op.regions:
            for inner in region.blocks:
                found |= _custom_operators(inner)
        if op.name == "torch.operator":
            namespace, _, name = target_name(op).partition(".")
            if namespace not in OUR_NAMESPACES:
                found.add(f"{namespace}::{name}")
    return found


def edges(module: ir.Module) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """A level-3 module's mesh, its arguments as the manifest has them, and why each is cut as it is."""
    mesh = read_mesh(module)
    assert mesh is not None, "a level-3 module has a mesh"
    function = step_function(module)
    codec = ShardingCodec(module.context, mesh)
    arguments = list(_edges(function, "arg_attrs", function.regions[0].blocks[0].arguments, codec))
    whys = [
        a["dist.why"].value if "dist.why" in a else "propagation" for a in function.attributes["arg_attrs"]
    ]
    return _mesh(mesh), arguments, whys


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
    """A setting of an optimizer as JSON holds it: tensors as numbers, tuples as lists, anything else by its repr."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [json_value(v) for v in value]
    return value if _is_json(value) else repr(value)


def _edges(
    function: ir.Operation, attribute: str, values: Any, codec: ShardingCodec
) -> Iterator[dict[str, Any]]:
    """The arguments or results of the step: name, role, global shape, dtype, sharding, padded shape if it has padding,
    and how the parts of a dim are interleaved, if they are."""
    for number, (attributes, value) in enumerate(zip(function.attributes[attribute], values, strict=True)):
        type_ = read_type(
            attributes["dist.global_type"].value if "dist.global_type" in attributes else value.type
        )
        if type_ is None:
            raise ValueError(f"{attribute}[{number}] of @step is no tensor")
        replicated = Sharding.replicated(len(type_.shape))
        sharding = codec.read(attributes["dist.sharding"]) if "dist.sharding" in attributes else replicated
        yield {
            "name": attributes["dist.name"].value,
            "role": attributes["dist.role"].value,
            "shape": list(type_.shape),
            "dtype": str(type_.dtype).removeprefix("torch."),
            "sharding": _sharding(sharding),
            **({"padded": list(attributes["dist.padded"])} if "dist.padded" in attributes else {}),
            **({"interleaved": _interleaved(attributes[INTERLEAVED])} if INTERLEAVED in attributes else {}),
        }


def _interleaved(attribute: ir.Attribute) -> dict[str, Any]:
    found = Interleaving.read(attribute)
    return {"dim": found.dim, "ways": found.parts.ways, "sizes": list(found.parts.sizes)}


def _sharding(sharding: Sharding) -> dict[str, Any]:
    return {
        "dims": [[[a.name, a.pre, a.size] for a in dim] for dim in sharding.dims],
        "partial": [[reduction, [a.name, a.pre, a.size]] for reduction, a in sharding.partial],
    }


def _mesh(mesh: Mesh) -> list[dict[str, Any]]:
    return [{"name": a.name, "size": a.size, "kind": a.kind} for a in mesh.axes]
