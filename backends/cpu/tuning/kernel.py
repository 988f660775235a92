"""Sketches of a kernel on a CPU, from its function as ``backends/cpu`` reads it."""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.body.axes import join_axes
from shardc.backends.body.graph import Argument, Computed, Graph
from shardc.backends.body.linear import Axis
from shardc.backends.body.nest import recursion
from shardc.backends.body.read_graph import read_graph
from shardc.backends.body.roots import Roots, base
from shardc.backends.body.structured import read_structured
from shardc.backends.cpu.emit.buffers import width_bytes
from shardc.backends.cpu.emit.computed_once import roots_of
from shardc.backends.cpu.emit.nests import Nest, find_nests, read_later
from shardc.backends.cpu.emit.stages import cost
from shardc.backends.cpu.host import this_machine
from shardc.backends.cpu.matmul.product import Operand, find_product, read_by
from shardc.backends.cpu.tuning import attention, matmul, rows, scatter
from shardc.backends.cpu.tuning.body import Loops, made_once
from shardc.backends.tuning.sketches import together
from shardc.backends.tuning.space import Sketch
from shardc.cost.machine import Cpu
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.dialects.kern.attention import AttentionOp
from shardc.dialects.kern.attention_backward import AttentionBackwardOp
from shardc.dialects.kern.attention_maps import read_attention
from shardc.dialects.kern.scatter_add import ScatterAddOp, scatter_add_of
from shardc.dialects.kern.size import hint


def sketches(functions: ir.Module, threads: int) -> tuple[Sketch, ...]:
    """Return the sketches of a module of ``extract`` with one function. Raises KernelNotSupported."""
    machine, function = this_machine(), functions.body.operations[0].operation
    body = read_structured(function)
    if body is not None:
        if body.op.name == ScatterAddOp.OPERATION_NAME:
            return (scatter.sketch(scatter_add_of(body.op, body.shapes), threads, machine),)
        if body.op.name not in (AttentionOp.OPERATION_NAME, AttentionBackwardOp.OPERATION_NAME):
            raise KernelNotSupported(what=body.op.name)
        backward = body.op.name != AttentionOp.OPERATION_NAME
        spec = read_attention(body.op, body.shapes)
        return (attention.sketch(spec, backward, threads, machine),)
    graph = read_graph(function)
    with recursion(1000 + 20 * len(graph.generics)):
        return (together(_nests(functions, graph, threads, machine)),)


def _nests(functions: ir.Module, graph: Graph, threads: int, machine: Cpu) -> list[Sketch]:
    roots = roots_of(graph)
    join_axes(roots)
    reads = {root: roots.reads(root) for root in roots.items}
    nests = find_nests(roots, reads)
    found: list[Sketch] = []
    for nest in nests:
        if nest.contraction is not None:
            found.append(_matmul(graph, nest, roots, threads, machine))
        elif nest.order:
            later = read_later(nest, nests, roots, reads)
            found.append(rows.sketch(Loops(functions, nest, roots, reads, later, graph), threads, machine))
    return found


def _matmul(graph: Graph, nest: Nest, roots: Roots, threads: int, machine: Cpu) -> Sketch:
    contraction = nest.contraction
    assert contraction is not None
    root = contraction.root
    value = next(v for v in graph.computed if v.generic is root.generic and v.number == 0)
    product, left, right = find_product(nest, contraction, value, roots)
    known = made_once(graph)

    def read_bytes(operand: Operand) -> int:
        ends = [base(v) for v, _ in roots.reads_of(read_by(operand.factor, root)).ends]
        return max((width_bytes(v.element) for v in ends), default=4)

    def work(operand: Operand) -> int:
        read = [v for v, _ in read_by(operand.factor, root)]
        return sum(cost(v, roots, known) for v in read if not isinstance(v, Argument))

    def apart(operand: Operand, axis: Axis) -> int:
        item = product.sum_bytes // product.terms
        return hint(operand.lies[1].factor(axis)) * item if operand.lies else 0

    made = {v.generic if isinstance(v, Computed) else v: v for r in nest.roots[1:] for v, _ in r.read()}
    operands = matmul.Operands(
        (left.along_k, right.along_k),
        (read_bytes(left), read_bytes(right)),
        (work(left), work(right)),
        sum(cost(v, roots, known) for v in made.values()),
        # Pairs along k must be adjacent, which needs packing.
        (apart(left, contraction.m[0]), apart(right, contraction.k[0]) if product.terms == 1 else 0),
    )
    return matmul.sketch(product, operands, threads, machine)
