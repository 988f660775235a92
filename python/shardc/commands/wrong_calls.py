"""Finds the invalid call in a user's MLIR after a pass failed on it."""

from __future__ import annotations

from torch_mlir import ir

from shardc.diagnostics.cli import WrongCall
from shardc.dialects.aten.call import Call, CallReader, is_constant, target_name
from shardc.dialects.aten.schema import UnknownOperator
from shardc.dialects.inner_ops import inner_ops
from shardc.passes.manager.mlir_errors import Source
from shardc.passes.partition.local_call import infer_types


def wrong_call(module: ir.Module, source: Source) -> WrongCall | None:
    """Return the first call that PyTorch rejects or gives other shapes; None if all are valid."""
    reader = CallReader()
    for op in inner_ops(module.operation):
        if not _is_known(op):
            continue
        try:
            problem = _problem(reader.read(op))
        except (TypeError, UnknownOperator):  # passes reject such a call themselves
            continue
        if problem:
            return WrongCall(op=f"torch.{target_name(op)}", problem=problem, **_place(source, op.location))
    return None


def _is_known(op: ir.Operation) -> bool:
    ours = op.name == "torch.operator" and target_name(op).startswith("shardc.")
    return ours or (op.name.startswith("torch.aten.") and not is_constant(op))


def _problem(call: Call) -> str:
    """Describe how PyTorch's meta kernel rejects a call or differs in shapes; empty if it agrees."""
    try:
        made = infer_types(call.spec.target, call.spec.args)
    except NotImplementedError:  # there is no meta kernel
        return ""
    except Exception as error:
        return f"PyTorch rejects it: {str(error).partition(chr(10))[0]}"
    for number, (right, given) in enumerate(zip(made, call.spec.results, strict=False)):
        if right is not None and given is not None and right.shape != given.shape:
            return f"result {number} has shape {list(right.shape)}, not {list(given.shape)}"
    return ""


def _place(source: Source, location: ir.Location) -> dict[str, str]:
    fields = source.fields("", location)
    return {"snippet": fields["snippet"], "where": fields["where"]}
