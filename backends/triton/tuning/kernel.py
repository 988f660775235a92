"""Sketches of a kernel on a GPU, from its function."""

from __future__ import annotations

from collections.abc import Mapping

from torch_mlir import ir

from shardc.backends.body.structured import read_structured
from shardc.backends.triton.emit.emit import read_kernel
from shardc.backends.triton.emit.scatter import COLUMNS, RUN
from shardc.backends.triton.matmul.product import product_of
from shardc.backends.triton.tuning import attention, matmul, rows
from shardc.backends.tuning.sketches import legal, together
from shardc.backends.tuning.space import Parameter, Sketch
from shardc.cost.kernel import stream_s
from shardc.cost.machine import Gpu
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.dialects.kern.attention import AttentionOp
from shardc.dialects.kern.attention_backward import AttentionBackwardOp
from shardc.dialects.kern.attention_maps import read_attention
from shardc.dialects.kern.scatter_add import ScatterAdd, ScatterAddOp, scatter_add_of
from shardc.dialects.kern.size import hint


def sketches(functions: ir.Module, target: Gpu, *, tf32: bool = False) -> tuple[Sketch, ...]:
    """Return the sketches of a module of ``extract`` with one function. Raises the backend's errors.

    Functions beside a matmul keep the backend's tiles: the names in ``#kern.config`` are the matmul's, and
    ``warps`` holds for all functions of the kernel.
    """
    function = functions.body.operations[0].operation
    body = read_structured(function)
    if body is not None:
        if body.op.name == ScatterAddOp.OPERATION_NAME:
            return (_scatter(scatter_add_of(body.op, body.shapes), target),)
        if body.op.name not in (AttentionOp.OPERATION_NAME, AttentionBackwardOp.OPERATION_NAME):
            raise KernelNotSupported(what=body.op.name)
        backward = body.op.name != AttentionOp.OPERATION_NAME
        spec = read_attention(body.op, body.shapes)
        return (attention.sketch(spec, backward, target, tf32),)
    kernel = read_kernel(function, target, tf32=tf32)
    if kernel.matmul is not None:
        return matmul.sketches(product_of(kernel.find_matmul(kernel.matmul)[0]), target)
    found = [rows.sketch(kernel.extent(f), target) for f in kernel.functions if f.order]
    return (together(found),)


def _scatter(spec: ScatterAdd, target: Gpu) -> Sketch:
    inner, count, item = hint(spec.inner), hint(spec.count) * hint(spec.outer), spec.out.dtype.itemsize
    columns = sorted({n for n in (32, 64, 128, 256, 512) if n < 2 * max(32, inner)} | {COLUMNS})
    rows_ = tuple(sorted({8, 16, 32, 64, RUN}))
    parameters = (Parameter("rows", rows_), Parameter("columns", tuple(columns)))

    def estimate_s(values: Mapping[str, int]) -> float:
        programs = -(-count // values["rows"]) * -(-inner // values["columns"])
        ends = 2 * (-(-count // values["rows"])) * inner * item
        return stream_s(3 * count * inner * item + ends, programs, 4, target)

    return Sketch("scatter_add", parameters, legal, estimate_s)
