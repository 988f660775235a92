"""Step of one call with split operands, rewritten, partitioned, and run on all devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_mlir import ir

from shardc.backends.eager.interpreter import run as execute
from shardc.backends.eager.program import find_step
from shardc.backends.eager.proof.blocks import cut, join
from shardc.backends.eager.proof.signature import read_arguments, read_results
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import fill, leaves, replace_leaves
from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.dist.mesh import Mesh, MeshAxis, write_mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.dialects.rules.proving.execution import run_operator
from shardc.passes.manager.pass_pipelines import build, run
from shardc.passes.partition.local_call import with_defaults
from shardc.report.traffic import transfers

SPLIT, PARTITION = (
    "torch-split-reductions",
    "dist-propagate,dist-insert-reshards,verify-level{level=2},dist-partition",
)


@dataclass(frozen=True)
class CutCall:
    """``target(*args)``, whose tensor operands are cut over ``ways`` devices, each along a dim or None."""

    target: str
    args: tuple[object, ...]
    dims: tuple[int | None, ...]
    ways: int = 8

    @property
    def mesh(self) -> Mesh:
        return Mesh((MeshAxis("space", self.ways),))

    @property
    def tensors(self) -> list[Tensor]:
        return [leaf for leaf in leaves(self.args) if isinstance(leaf, Tensor)]

    def module(self) -> ir.Module:
        """The step at level 1. Its results are outputs, which keep their layouts."""
        types = [TensorType(tuple(t.shape), t.dtype) for t in self.tensors]
        rest = iter(types)
        args = replace_leaves(self.args, lambda leaf: next(rest) if isinstance(leaf, Tensor) else leaf)
        full = with_defaults(self.target, args)
        results = [TensorType(tuple(t.shape), t.dtype) if t is not None else None for t in self._native()]
        with ir.Location.unknown() as here:
            module = ir.Module.create()
            context = module.context
            inputs, made = ([write_type(t, context) for t in ts if t] for ts in (types, results))
            codec = ShardingCodec(context, self.mesh)
            write_mesh(module, self.mesh)
            rows = [
                {"dist.sharding": codec.write(self._sharding(t, d))}
                for t, d in zip(types, self.dims, strict=True)
            ]
            outputs = [{"dist.role": "output", "dist.name": str(i)} for i in range(len(made))]
            text = ir.StringAttr.get
            attributes = {
                "sym_name": text("step"),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, made)),
                "arg_attrs": ir.ArrayAttr.get([ir.DictAttr.get(row) for row in rows]),
                "res_attrs": ir.ArrayAttr.get(
                    [ir.DictAttr.get({k: text(v) for k, v in row.items()}) for row in outputs]
                ),
            }
            place = ir.InsertionPoint(module.body)
            function = ir.Operation.create("func.func", [], [], attributes, regions=1, ip=place)
            block = ir.Block.create_at_start(function.regions[0], inputs)
            inside = ir.InsertionPoint(block)
            op = CallBuilder(block).call(
                self.target, fill(full, list(block.arguments)), results, here, inside
            )
            found = [r for r, t in zip(op.results, results, strict=True) if t]
            ir.Operation.create("func.return", [], found, ip=inside)
        return module

    def _sharding(self, type_: TensorType, dim: int | None) -> Sharding:
        axis = self.mesh.whole("space")
        return Sharding(tuple((axis,) if d == dim else () for d in range(len(type_.shape))))

    def split(self) -> ir.Module:
        """Level 1, rewritten."""
        module = self.module()
        run(module, build(SPLIT))
        return module

    def partitioned(self) -> ir.Module:
        """Level 3."""
        module = self.split()
        run(module, build(PARTITION))
        return module

    def native(self) -> list[Tensor]:
        """What PyTorch's operator makes on one device."""
        return [t for t in self._native() if t is not None]

    def _native(self) -> Sequence[Tensor | None]:
        made = run_operator(self.target, with_defaults(self.target, self.args))
        return made if isinstance(made, tuple) else (made,)

    def on_devices(self) -> list[Tensor]:
        """What the devices make, put together."""
        module = self.partitioned()
        step = find_step(module)
        assert step is not None
        codec = ShardingCodec(module.context, self.mesh)
        ports = zip(self.tensors, read_arguments(step, codec), strict=True)
        blocks = [cut(t, port.sharding, self.mesh, port.padded) for t, port in ports if port.sharding]
        whole = []
        for made, port in zip(execute(module, blocks), read_results(step, codec), strict=True):
            assert port.sharding is not None
            joined, spread = join(made, port.sharding, self.mesh, port.global_type.shape)
            assert spread == 0
            whole.append(joined)
        return whole

    def sent(self) -> dict[str, int]:
        """The bytes that each device sends, by kind of collective."""
        found: dict[str, int] = {}
        for transfer in transfers(self.partitioned()):
            found[transfer.kind] = found.get(transfer.kind, 0) + round(transfer.bytes_moved)
        return found


def check(call: CutCall, tolerance: float = 4.0) -> None:
    """The devices' results are PyTorch's, to some units in the last place of each dtype."""
    for want, found in zip(call.native(), call.on_devices(), strict=True):
        eps = tolerance * torch.finfo(want.dtype).eps if want.dtype.is_floating_point else 0.0
        torch.testing.assert_close(found, want, rtol=eps, atol=eps, equal_nan=True)


def targets(module: ir.Module) -> Sequence[str]:
    """The operators of a step, without constants and lists."""
    step = find_step(module)
    assert step is not None
    names = [op.operation.name for op in step.regions[0].blocks[0].operations]
    return [n.removeprefix("torch.") for n in names if "constant" not in n and "prim." not in n]
