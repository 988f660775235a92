"""Reader of a kernel's body, an MLIR function, as a graph of tensors."""

from __future__ import annotations

from math import prod

from torch_mlir import ir

from shardc.backends.body.graph import (
    Argument,
    Computed,
    Extract,
    Generic,
    Graph,
    Slice,
    Splat,
    Steps,
    Undefined,
    Value,
    View,
)
from shardc.backends.body.linear import Shape
from shardc.backends.body.signature import config_of, in_place_of, symbols_and_shapes
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.dialects.kern.generic import GENERIC, loop_of
from shardc.dialects.kern.size import AnySize, Size
from shardc.passes.fuse.bodies.flat import FLAT


def read_graph(function: ir.Operation, until: ir.Operation | None = None) -> Graph:
    """Read a function of :func:`extract`; its ops before ``until``, whose operands are then the results.

    Raises:
        KernelNotSupported: An op or an indexing map is not supported in kernels.
    """
    block = function.regions[0].blocks[0]
    generics: list[Generic] = []
    results: list[Value] = []
    symbols, shapes = symbols_and_shapes(function)
    count = len(block.arguments) - len(symbols)
    tensors, integers = list(block.arguments)[:count], list(block.arguments)[count:]
    sizes: dict[ir.Value, AnySize] = dict(zip(integers, map(Size.of, symbols), strict=True))
    values = _Values(sizes)
    for position, argument in enumerate(tensors):
        type_ = ir.RankedTensorType(argument.type)
        shape = shapes[position] if shapes else tuple(type_.shape)
        values[argument] = values.argument(position, shape, type_.element_type)
    for view in block.operations:
        op = view.operation
        if until is not None and op == until:
            results = [values[v] for v in op.operands]
            break
        if op.name == "func.return":
            results = [values[v] for v in op.operands]
        elif isinstance(op.results[0].type, ir.IndexType):
            sizes[op.results[0]] = _size(op, sizes)
        elif op.name == GENERIC:
            generic = _generic(op, values, len(generics))
            generics.append(generic)
            for number, result in enumerate(op.results):
                init = generic.inits[number]
                values[result] = Computed(init.shape, init.element, generic=generic, number=number)
        elif made := _simple(op, values):
            values[op.results[0]] = made
    return Graph(
        name=ir.StringAttr(function.attributes["sym_name"]).value,
        inputs=len(tensors),
        arguments=list(values.arguments.values()),
        results=results,
        generics=generics,
        views=[v for v in values.values() if isinstance(v, View)],
        computed=[v for v in values.values() if isinstance(v, Computed)],
        config=config_of(function),
        in_place=in_place_of(function),
        flat=FLAT in function.attributes,
        symbols=symbols,
        sizes=sizes,
    )


class _Values(dict[ir.Value, Value]):
    """Tensors of a body by MLIR value, and its ``sizes``."""

    def __init__(self, sizes: dict[ir.Value, AnySize]) -> None:
        super().__init__()
        self.sizes = sizes
        self.arguments: dict[tuple[int, tuple[AnySize, ...]], Argument] = {}

    def argument(self, position: int, shape: tuple[AnySize, ...], element: ir.Type) -> Argument:
        """Return input number ``position``, seen in ``shape``."""
        return self.arguments.setdefault((position, shape), Argument(shape, element, position=position))

    def shape(self, result: ir.Value, sizes: list[ir.Value]) -> tuple[tuple[AnySize, ...], ir.Type]:
        """Return shape and element type of ``result``. ``sizes``: its dynamic sizes."""
        type_, rest = ir.RankedTensorType(result.type), iter(sizes)
        shape = (self.sizes[next(rest)] if type_.is_dynamic_dim(d) else n for d, n in enumerate(type_.shape))
        return tuple(shape), type_.element_type


_MOVES = ("arith.index_cast", "arith.extsi", "arith.addi", "arith.minsi", "arith.maxsi", "math.absi")


def _steps(value: ir.Value) -> Steps | None:
    """Return an index as a linear function of the loops, with factors that are not negative."""
    if isinstance(value, ir.BlockArgument):
        return None
    if (loop := loop_of(value)) is not None:
        return {loop: 1}, 0
    op = value.owner.operation
    if op.name == "arith.constant":
        return {}, ir.IntegerAttr(op.attributes["value"]).value
    if op.name not in ("arith.index_cast", "arith.extsi", "arith.addi", "arith.subi", "arith.muli"):
        return None
    found = [_steps(operand) for operand in op.operands]
    if not all(found):
        return None
    (factors, constant), *others = (steps for steps in found if steps)
    if op.name in ("arith.index_cast", "arith.extsi"):
        return factors, constant
    if op.name == "arith.addi":
        ((more, other),) = others
        return {loop: factors.get(loop, 0) + more.get(loop, 0) for loop in factors | more}, constant + other
    if op.name == "arith.subi" and not others[0][0]:
        return factors, constant - others[0][1]
    if op.name == "arith.muli" and not others[0][0] and others[0][1] > 0:
        return {loop: n * others[0][1] for loop, n in factors.items()}, constant * others[0][1]
    return None


def _unit_steps(value: ir.Value) -> frozenset[int]:
    """Return the loops with which an index moves by one, except where a comparison changes."""
    if isinstance(value, ir.BlockArgument):
        return frozenset()
    if (loop := loop_of(value)) is not None:
        return frozenset([loop])
    op = value.owner.operation
    operands = list(op.operands)
    if op.name == "arith.select":
        operands = operands[1:]
    elif op.name == "arith.subi":
        operands = operands[:1]
    elif op.name not in _MOVES:
        return frozenset()
    return frozenset().union(*(_unit_steps(operand) for operand in operands))


def _size(op: ir.Operation, sizes: dict[ir.Value, AnySize]) -> AnySize:
    if op.name == "arith.constant":
        return ir.IntegerAttr(op.attributes["value"]).value
    if op.name not in ("arith.muli", "arith.addi"):
        raise KernelNotSupported(what=f"{op.name} of symbolic sizes")
    left, right = (sizes[v] for v in op.operands)
    return left * right if op.name == "arith.muli" else left + right


def _simple(op: ir.Operation, values: _Values) -> Value | None:
    """Return the tensor of an op; None for scalar ops, which are copied where they are used."""
    result = op.results[0]
    if not isinstance(result.type, ir.RankedTensorType):
        if op.name.startswith(("arith.", "math.")):
            return None
        raise KernelNotSupported(what=op.name)
    operands = list(op.operands)
    if op.name == "tensor.empty":
        return Undefined(*values.shape(result, operands))
    if op.name == "linalg.fill":
        return Splat(values[operands[1]].shape, values[operands[1]].element, scalar=operands[0])
    if op.name == "arith.constant":
        value = ir.DenseElementsAttr(op.attributes["value"])
        if not value.is_splat:
            raise KernelNotSupported(what="a constant of several elements")
        return Splat(*values.shape(result, []), scalar=value.get_splat_value())
    if op.name in ("tensor.expand_shape", "tensor.collapse_shape"):
        return _view(op, values)
    if op.name == "tensor.extract_slice":
        return _slice(op, values)
    raise KernelNotSupported(what=op.name)


def _view(op: ir.Operation, values: _Values) -> Value:
    operand, *sizes = op.operands
    groups = [[ir.IntegerAttr(d).value for d in ir.ArrayAttr(g)] for g in op.attributes["reassociation"]]
    expands, source = op.name == "tensor.expand_shape", values[operand]
    shape = values.shape(op.results[0], sizes)[0] if expands else _merged(source.shape, groups)
    if values.sizes and isinstance(source, Argument):  # no pass has moved views of symbolic sizes to inputs
        return values.argument(source.position, shape, source.element)
    if isinstance(source, Slice) and not expands and (made := _slice_of_view(source, shape, groups, values)):
        return made
    return View(shape, source.element, source=source, groups=groups, expands=expands)


def _merged(shape: Shape, groups: list[list[int]]) -> Shape:
    return tuple(prod(shape[d] for d in group) for group in groups)


def _slice_of_view(
    source: Slice, shape: tuple[AnySize, ...], groups: list[list[int]], values: _Values
) -> Slice | None:
    """Return a slice of a collapsed input as a slice of that input; None if it collapses a dim in part."""
    base = source.source
    if not groups or not isinstance(base, Argument):
        return None  # a scalar, without groups, is a single element
    dims = zip(source.offsets, source.steps, source.shape, base.shape, strict=True)
    whole = [(first, step, size) == (0, 1, full) for first, step, size, full in dims]
    if not all(len(group) == 1 or all(whole[d] for d in group) for group in groups):
        return None
    seen = values.argument(base.position, _merged(base.shape, groups), base.element)
    offsets, steps = ([of[group[0]] for group in groups] for of in (source.offsets, source.steps))
    return Slice(shape, source.element, source=seen, offsets=offsets, steps=steps)


def _slice(op: ir.Operation, values: _Values) -> Slice:
    source, *sizes = op.operands
    shape, element = values.shape(op.results[0], sizes)
    if len(shape) != len(values[source].shape):
        raise KernelNotSupported(what="a slice that drops dims")
    names = ("static_offsets", "static_strides")
    offsets, steps = (list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in names)
    return Slice(shape, element, source=values[source], offsets=offsets, steps=steps)


def _generic(op: ir.Operation, values: _Values, number: int) -> Generic:
    operands = [values[v] if v in values else Splat((), v.type, scalar=v) for v in op.operands]
    generic = Generic(op, operands, number, {})
    for at, inner in enumerate(generic.body_ops):
        if inner.name == "tensor.extract":
            source, *positions = inner.operands
            steps, unit_steps = [_steps(p) for p in positions], [_unit_steps(p) for p in positions]
            generic.extracts[inner.results[0]] = Extract(at, values[source], steps, unit_steps)
    loops = zip(range(len(generic.sizes)), generic.sizes, generic.reduces, strict=True)
    parallel = {loop for loop, size, reduces in loops if not reduces and size != 1}
    if not all(parallel <= set(map_) for map_ in generic.maps[generic.input_count :]):
        raise KernelNotSupported(what="a parallel loop over a dim that no result has")
    return generic
