"""Arguments and results of a step, as described by their attributes."""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir

from shardc.backends.eager.proof.blocks import without_time
from shardc.diagnostics.oracle import BadArguments
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.interleaving import ATTRIBUTE, Interleaving
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.manager.attributes import SHARE

Key = tuple[str, str]
"""Role and name of an argument, result or observed value."""


@dataclass(frozen=True)
class Port:
    """Argument or result.

    ``type``: its type in the function: of shape ``padded`` at levels 1 and 2, and of a rank's block at level
    3. ``padded``: the global shape, padded if dims do not divide. ``sharding``: None at level 1.
    ``interleaving``: storage order of a dim of several parts, if it is not the logical order. ``share``: the
    time axis whose iterations are shared among ranks, which read only their own rows; empty without one.
    """

    role: str
    name: str
    type: TensorType
    global_type: TensorType
    padded: tuple[int, ...]
    sharding: Sharding | None
    interleaving: Interleaving | None = None
    share: str = ""

    @property
    def key(self) -> Key:
        return self.role, self.name

    def __str__(self) -> str:
        return f"{self.role} {self.name!r}"


def read_arguments(step: ir.Operation, codec: ShardingCodec) -> list[Port]:
    """Return the arguments in order. Raises BadArguments for one that is not a tensor."""
    types = [a.type for a in step.regions[0].blocks[0].arguments]
    return _ports(step, "argument", types, "arg_attrs", codec)


def read_results(step: ir.Operation, codec: ShardingCodec) -> list[Port]:
    """Return the results in order. Raises BadArguments for one that is not a tensor."""
    types = ir.FunctionType(ir.TypeAttr(step.attributes["function_type"]).value).results
    return _ports(step, "result", types, "res_attrs", codec)


def merged(ports: list[list[Port]]) -> list[Port]:
    """Return the ports of all pipeline ranks, each once."""
    return list({port.key: port for of_rank in ports for port in of_rank}.values())


def _ports(
    step: ir.Operation, kind: str, types: list[ir.Type], name: str, codec: ShardingCodec
) -> list[Port]:
    dicts = list(step.attributes[name]) if name in step.attributes else [{}] * len(types)
    return [_port(kind, i, t, d, codec) for i, (t, d) in enumerate(zip(types, dicts, strict=True))]


def _port(
    kind: str, index: int, type_: ir.Type, attributes: ir.DictAttr | dict, codec: ShardingCodec
) -> Port:
    role, name = _text(attributes, "dist.role", kind), _text(attributes, "dist.name", str(index))
    own = whole = read_type(type_)
    if "dist.global_type" in attributes:
        whole = read_type(ir.TypeAttr(attributes["dist.global_type"]).value)
    if own is None or whole is None:
        raise BadArguments(argument=f"{role} {name!r}", problem=f"{type_} is not a tensor of static shape")
    sharding = codec.read(attributes["dist.sharding"]) if "dist.sharding" in attributes else None
    padded = whole.shape
    if "dist.padded" in attributes:
        padded = tuple(ir.DenseI64ArrayAttr(attributes["dist.padded"]))
    if sharding is None and own.shape != padded:
        problem = "it has a dist.global_type but no dist.sharding"
        raise BadArguments(argument=f"{role} {name!r}", problem=problem)
    stored = Interleaving.read(attributes[ATTRIBUTE]) if ATTRIBUTE in attributes else None
    return Port(role, name, own, whole, padded, sharding, stored, _text(attributes, SHARE, ""))


def holds_blocks(ports: list[Port], mesh: Mesh) -> bool:
    """Return True for a rank's step (level 3): all arguments and results have the shapes of blocks."""
    shardings = [p.sharding and without_time(p.sharding, mesh) for p in ports]
    return all(s and p.type.shape == s.local_shape(p.padded) for s, p in zip(shardings, ports, strict=True))


def _text(attributes: ir.DictAttr | dict, key: str, default: str) -> str:
    return ir.StringAttr(attributes[key]).value if key in attributes else default
