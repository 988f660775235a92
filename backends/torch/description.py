"""Description of a level 3 or 4 program for the manifest: its arguments, results, calls and kernels."""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.body.extract import kernel_name, kernels
from shardc.backends.eager.proof.signature import Port, merged, read_arguments, read_results
from shardc.backends.torch.emit import step_function
from shardc.dialects.aten.call import target_name
from shardc.dialects.dist.mesh import MeshAxis, read_mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.dialects.pipe.rank_function import pipeline_axis, rank_functions
from shardc.runtime.check import Json

OUR_NAMESPACES = ("aten", "prims", "shardc")
"""Namespaces of operators that torch and the runtime define."""


def describe_program(module: ir.Module) -> Json:
    """Return a level 3 or 4 module's fields in a manifest: mesh, arguments, results, calls, pipeline."""
    mesh = read_mesh(module)
    if mesh is None:
        raise ValueError("the module has no dist.mesh: it is not at level 3")
    codec = ShardingCodec(module.context, mesh)
    functions = rank_functions(module) or [step_function(module)]
    arguments = [read_arguments(f, codec) for f in functions]
    results = [read_results(f, codec) for f in functions]
    axis = pipeline_axis(module)
    pipeline = [{"name": axis, "arguments": [[list(port.key) for port in of] for of in arguments]}]
    return {
        "mesh": list(map(_mesh_axis, mesh.axes)),
        "arguments": list(map(_entry, merged(arguments))),
        "results": list(map(_entry, merged(results))),
        "operators": [{"name": name} for name in sorted(_custom_operators(module.body))],
        "kernels": describe_kernels(module),
        "pipeline": [] if axis is None else pipeline,
    }


def describe_kernels(module: ir.Module) -> list[Json]:
    """Return the distinct kernels of a level 4 module: name, number of calls, and replaced ops."""
    found: dict[str, Json] = {}
    for op in kernels(module):
        ops = [ir.StringAttr(name).value for name in op.attributes["kern.ops"]]
        entry = found.setdefault(kernel_name(op), {"name": kernel_name(op), "calls": 0, "ops": ops})
        entry["calls"] += 1
    return list(found.values())


def _custom_operators(block: ir.Block) -> set[str]:
    """Return the user's own operators that a block or its loops call, such as ``mylib::row_norm``."""
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
    """Return a level 3 module's mesh, its arguments as in the manifest, and why each has its sharding."""
    described, attributes = describe_program(module), step_function(module).attributes["arg_attrs"]
    whys = [
        ir.StringAttr(a["dist.why"]).value if "dist.why" in a else "nothing shards it" for a in attributes
    ]
    return described["mesh"], described["arguments"], whys


def _mesh_axis(axis: MeshAxis) -> Json:
    """Return an axis in the form that :meth:`shardc.runtime.comm.mesh.Mesh.read` reads."""
    trips = {"trips": list(axis.trips)} if axis.trips else {}
    return {"name": axis.name, "size": axis.size, "kind": axis.kind, **trips}


def _entry(port: Port) -> Json:
    """Return an argument or result in the form that :class:`shardc.runtime.comm.layout.Leaf` reads."""
    type_, stored = port.global_type, port.interleaving
    sharding = port.sharding or Sharding.replicated(len(type_.shape))
    found: Json = {
        "name": port.name,
        "role": port.role,
        "shape": list(type_.shape),
        "dtype": str(type_.dtype).removeprefix("torch."),
        "sharding": {
            "dims": [[[a.name, a.pre, a.size] for a in dim] for dim in sharding.dims],
            "partial": [[reduction, [a.name, a.pre, a.size]] for reduction, a in sharding.partial],
        },
    }
    if port.padded != type_.shape:
        found["padded"] = list(port.padded)
    if port.share:
        found["share"] = port.share
    if stored is not None:
        parts = stored.parts
        found["interleaved"] = {"dim": stored.dim, "ways": parts.ways, "sizes": list(parts.sizes)}
    return found
