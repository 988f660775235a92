"""What a program of level 3 or 4 takes and gives, as a manifest says it and the runtime reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch_mlir import ir

from shardc.backends.body.extract import kernel_name, kernels
from shardc.backends.torch.emit import step_function
from shardc.backends.torch.step import yielded
from shardc.dialects.aten.call import target_name
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.interleaving import ATTRIBUTE as INTERLEAVED
from shardc.dialects.dist.interleaving import Interleaving
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.dialects.pipe.rank_function import pipeline_axis, rank_functions
from shardc.runtime.check import Json

OUR_NAMESPACES = ("aten", "prims", "shardc")
"""Operators that are there wherever torch and the runtime are."""


def describe_program(module: ir.Module) -> Json:
    """Return what a manifest says of a level 3 or 4 module: mesh, arguments, results, calls, pipeline."""
    mesh = read_mesh(module)
    if mesh is None:
        raise ValueError("the module has no dist.mesh: it is not at level 3")
    codec = ShardingCodec(module.context, mesh)
    functions = rank_functions(module) or [step_function(module)]
    arguments = [list(_edges(f, "arg_attrs", f.regions[0].blocks[0].arguments, codec)) for f in functions]
    results = [list(_edges(f, "res_attrs", yielded(f.regions[0].blocks[0]), codec)) for f in functions]
    axis = pipeline_axis(module)
    pipeline = [{"name": axis, "arguments": [[_key(e) for e in of] for of in arguments]}]
    return {
        "mesh": [{"name": a.name, "size": a.size, "kind": a.kind} for a in mesh.axes],
        "arguments": _merged(arguments),
        "results": _merged(results),
        "operators": [{"name": name} for name in sorted(_custom_operators(module.body))],
        "kernels": describe_kernels(module),
        "pipeline": [] if axis is None else pipeline,
    }


def _merged(entries: list[list[Json]]) -> list[Json]:
    """The arguments or results of all ranks of a pipeline, each once."""
    return list({tuple(_key(entry)): entry for of_rank in entries for entry in of_rank}.values())


def _key(entry: Json) -> list[str]:
    return [entry["role"], entry["name"]]


def describe_kernels(module: ir.Module) -> list[Json]:
    """The distinct kernels of a level-4 module: name, number of calls, and the ops that each stands for."""
    found: dict[str, Json] = {}
    for op in kernels(module):
        ops = [ir.StringAttr(name).value for name in op.attributes["kern.ops"]]
        entry = found.setdefault(kernel_name(op), {"name": kernel_name(op), "calls": 0, "ops": ops})
        entry["calls"] += 1
    return list(found.values())


def _custom_operators(block: ir.Block) -> set[str]:
    """The operators called in a block, loops included, that are the user's own: ``mylib::row_norm``."""
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


def edges(module: ir.Module) -> tuple[list[Json], list[Json], list[str]]:
    """A level-3 module's mesh, its arguments as the manifest has them, and why each is cut as it is."""
    described, attributes = describe_program(module), step_function(module).attributes["arg_attrs"]
    whys = [ir.StringAttr(a["dist.why"]).value if "dist.why" in a else "propagation" for a in attributes]
    return described["mesh"], described["arguments"], whys


def _edges(
    function: ir.Operation, attribute: str, values: Iterable[ir.Value], codec: ShardingCodec
) -> Iterator[Json]:
    """The arguments or results of the step, as :class:`shardc.runtime.comm.layout.Leaf` reads them."""
    for number, (attributes, value) in enumerate(zip(function.attributes[attribute], values, strict=True)):
        whole = attributes["dist.global_type"] if "dist.global_type" in attributes else None
        type_ = read_type(value.type if whole is None else ir.TypeAttr(whole).value)
        if type_ is None:
            raise ValueError(f"{attribute}[{number}] of @step is no tensor")
        replicated = Sharding.replicated(len(type_.shape))
        sharding = codec.read(attributes["dist.sharding"]) if "dist.sharding" in attributes else replicated
        found: Json = {
            "name": attributes["dist.name"].value,
            "role": attributes["dist.role"].value,
            "shape": list(type_.shape),
            "dtype": str(type_.dtype).removeprefix("torch."),
            "sharding": _sharding(sharding),
        }
        if "dist.padded" in attributes:
            found["padded"] = list(attributes["dist.padded"])
        if INTERLEAVED in attributes:
            found["interleaved"] = _interleaved(attributes[INTERLEAVED])
        yield found


def _interleaved(attribute: ir.Attribute) -> Json:
    found = Interleaving.read(attribute)
    return {"dim": found.dim, "ways": found.parts.ways, "sizes": list(found.parts.sizes)}


def _sharding(sharding: Sharding) -> Json:
    return {
        "dims": [[[a.name, a.pre, a.size] for a in dim] for dim in sharding.dims],
        "partial": [[reduction, [a.name, a.pre, a.size]] for reduction, a in sharding.partial],
    }
