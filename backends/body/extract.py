"""Extraction of ``kern.kernel`` regions to functions: ``func.func @name(tensors) -> tensors``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith, func
from torch_mlir.passmanager import PassManager

from shardc.dialects.kern.generic import GENERIC, GenericLoops
from shardc.dialects.kern.kernel import HINTS, IN_PLACE, SHAPES, KernelOp, kernel_name
from shardc.passes.fuse.bodies.flat import FLAT, flatten

ATTRIBUTES = {"config": "kern.config", IN_PLACE: "kern.in_place", FLAT: FLAT, SHAPES: SHAPES, HINTS: HINTS}
"""Attributes that a function inherits from its kernel, with their names there."""
RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")


def kernels(module: ir.Module) -> list[ir.Operation]:
    """Return every outermost ``kern.kernel`` of ``module``, in order."""
    return list(_kernels(module.operation))


def extract(module: ir.Module) -> ir.Module:
    """Return a new module with one function for each kernel of ``module``, which does not change.

    Functions have the kernel's ``config``, ``in_place`` and known sizes. Functions of flat kernels have flat
    bodies. Named ops become generic ones, and views between ops are moved to the function's inputs and
    results where possible. Bodies with symbolic sizes are not changed.
    """
    return extract_kernels(kernels(module))


def extract_kernels(found: Sequence[ir.Operation]) -> ir.Module:
    """Do the same for a list of kernels, which is not empty."""
    with found[0].context, ir.Location.unknown():
        made = ir.Module.create()
        named = {kernel_name(kernel): kernel for kernel in found}  # the same name means the same body
        for kernel in named.values():
            _function(kernel, made)
        for function in made.body:
            if _is_static(function.operation):
                _normalise(function.operation)
        return made


def _kernels(op: ir.Operation) -> Iterator[ir.Operation]:
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                if view.operation.name == KernelOp.OPERATION_NAME:
                    yield view.operation
                else:
                    yield from _kernels(view.operation)


def _function(kernel: ir.Operation, module: ir.Module) -> None:
    copy = kernel.clone(ip=ir.InsertionPoint(kernel))
    block = copy.regions[0].blocks[0]
    if FLAT in kernel.attributes:
        flatten(block)
    end = list(block.operations)[-1].operation
    packed = end.operands[0].owner.operation  # the yield takes one tuple
    results = list(packed.operands)
    types = [a.type for a in block.arguments], [v.type for v in results]
    with ir.InsertionPoint(module.body):
        function = func.FuncOp(kernel_name(kernel), types)
    for attribute, name in ATTRIBUTES.items():
        if attribute in kernel.attributes:
            function.attributes[name] = kernel.attributes[attribute]
    block.append_to(function.regions[0])
    with ir.InsertionPoint(end):
        func.ReturnOp(results)
    end.erase()
    packed.erase()
    copy.erase()


def _is_static(function: ir.Operation) -> bool:
    """Return True if all sizes in its body are numbers."""
    block = function.regions[0].blocks[0]
    values = [*block.arguments, *(result for view in block.operations for result in view.operation.results)]
    tensors = [ir.RankedTensorType(v.type) for v in values if isinstance(v.type, ir.RankedTensorType)]
    return all(type_.has_static_shape for type_ in tensors)


def _normalise(function: ir.Operation) -> None:
    passes = ["linalg-generalize-named-ops", "canonicalize", "cse"]
    ops = [o.operation for o in function.regions[0].blocks[0].operations]
    reshapes = any(op.name in RESHAPES for op in ops)
    inner = (each.name for op in ops if op.name == GENERIC for each in GenericLoops(op).body_ops)
    inside = reshapes and not all(map(_is_at_the_edge, ops))
    if inside and "tensor.extract" not in inner:  # otherwise it would expand only some loops of a row
        passes += ["linalg-fuse-elementwise-ops", "canonicalize", "cse"]
    PassManager.parse(f"func.func({','.join(passes)})", function.context).run(function)
    _add_instead_of_subtracting(function)


def _add_instead_of_subtracting(function: ir.Operation) -> None:
    """Write ``accumulator - x`` as ``accumulator + (-x)``, a sum of terms.

    Canonicalization turns a sum of negated terms into the former.
    """
    for op in [o.operation for o in function.regions[0].blocks[0].operations if o.operation.name == GENERIC]:
        generic = GenericLoops(op)
        accumulators = list(generic.block.arguments)[generic.input_count :]
        for inner in generic.body_ops if any(generic.reduces) else ():
            if inner.name not in ("arith.subf", "arith.subi") or inner.operands[0] not in accumulators:
                continue
            accumulator, term = inner.operands
            with ir.InsertionPoint(inner), inner.location:
                if inner.name == "arith.subf":
                    total = arith.addf(accumulator, arith.negf(term))
                else:
                    total = arith.addi(accumulator, arith.subi(arith.constant(term.type, 0), term))
            inner.results[0].replace_all_uses_with(total)
            inner.erase()


def _is_at_the_edge(op: ir.Operation) -> bool:
    """Return whether an op is no reshape, or one of an input, or of a result that nothing else reads."""
    return op.name not in RESHAPES or _is_of_input(op) or _is_of_result(op)


def _is_of_input(op: ir.Operation) -> bool:
    value = op.operands[0]
    return isinstance(value, ir.BlockArgument) or (value.owner.name in RESHAPES and _is_of_input(value.owner))


def _is_of_result(op: ir.Operation) -> bool:
    users = [use.owner.operation for use in op.results[0].uses]
    return all(
        user.name == "func.return" or (user.name in RESHAPES and _is_of_result(user)) for user in users
    )
