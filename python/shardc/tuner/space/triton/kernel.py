"""The sketches of a kernel on a GPU, read from its function as ``backends/triton`` reads it."""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.body.scatter import is_scatter
from shardc.backends.body.signature import symbols_and_shapes
from shardc.backends.triton.attention_kernel import is_attention
from shardc.backends.triton.emit import read_kernel
from shardc.backends.triton.matmul import HAS_DESCRIPTORS
from shardc.backends.triton.scatter import COLUMNS, RUN
from shardc.backends.triton.stream_model import stream_s
from shardc.backends.triton.targets import Target
from shardc.dialects.kern.attention import AttentionOp, attention_of
from shardc.dialects.kern.attention_backward import attention_backward_of
from shardc.dialects.kern.scatter_add import scatter_add_of
from shardc.dialects.kern.size import hint
from shardc.tuner.space.sketches import legal, together
from shardc.tuner.space.space import Parameter, Sketch
from shardc.tuner.space.triton import attention, matmul, rows


def sketches(functions: ir.Module, target: Target, *, tf32: bool = False) -> tuple[Sketch, ...]:
    """Of a module of :func:`shardc.backends.body.extract.extract` that has one function.

    Functions beside a matmul have the tiles that are chosen for them: names of ``#kern.config`` are the kernel's, and
    ``warps`` those of all of its functions.

    Raises KernelNotSupported, TritonKernelNotSupported as the backend does.
    """
    function = functions.body.operations[0].operation
    if is_attention(function) or is_scatter(function):
        op = next(iter(function.regions[0].blocks[0].operations)).operation
        _, shapes = symbols_and_shapes(function)
        if is_scatter(function):
            return (_scatter(op, shapes, target),)
        backward = op.name != AttentionOp.OPERATION_NAME
        spec = (attention_backward_of if backward else attention_of)(op, shapes)
        return (attention.sketch(spec, backward, target, tf32),)
    kernel = read_kernel(function, target, tf32=tf32)
    if kernel.matmul is not None:
        found, _ = kernel.find_matmul(kernel.matmul)
        return matmul.sketches(
            found.product, target.arch in HAS_DESCRIPTORS and found.product.by_descriptor, target
        )
    return (
        together([rows.sketch(kernel.extent(f), kernel.limits, target) for f in kernel.functions if f.order]),
    )


def _scatter(op: ir.Operation, shapes: object, target: Target) -> Sketch:
    spec = scatter_add_of(op, shapes)
    inner, count, item = hint(spec.inner), hint(spec.count) * hint(spec.outer), spec.out.dtype.itemsize
    columns = sorted({n for n in (32, 64, 128, 256, 512) if n < 2 * max(32, inner)} | {COLUMNS})
    parameters = (
        Parameter("rows", tuple(sorted({8, 16, 32, 64, RUN}))),
        Parameter("columns", tuple(columns)),
    )

    def estimate_s(values: dict[str, int]) -> float:
        programs = -(-count // values["rows"]) * -(-inner // values["columns"])
        ends = 2 * (-(-count // values["rows"])) * inner * item
        return stream_s(3 * count * inner * item + ends, programs, 4, target)

    return Sketch("scatter_add", parameters, legal, estimate_s)
