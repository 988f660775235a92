"""Shared parts of the verifiers of ``dist`` ops: reading an op's parts, and reporting problems as errors.

A verifier is a function of a :class:`Site` that raises :class:`Illegal`. It runs before MLIR checks that
declared attributes exist and have their type. So reading a missing or wrong attribute raises
:class:`LeftToMlir`, and MLIR reports its own error.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.axis import Axis, AxisAttr
from shardc.dialects.dist.check import check_axes, check_sharding, unknown_axis, unknown_reduction
from shardc.dialects.dist.mesh import MESH_SYMBOL, Mesh, find_mesh, mesh_problem, read_mesh_op
from shardc.dialects.dist.sharding import OPEN, REDUCTIONS, Axes, Sharding, ShardingAttr, ShardingCodec
from shardc.dialects.dist.tuples import element_types

A = TypeVar("A", bound=ir.Attribute)
# Annotations of an op's fields, which the bindings read when the class is created.
Operand: TypeAlias = ir.Value[Any]
Result: TypeAlias = ir.OpResult[Any]

_meshes: dict[str, Mesh] = {}
"""Meshes by the printed form of their axes."""


class Illegal(Exception):
    """Problem of an op, in words. ``at`` is its location if that is not the op's."""

    def __init__(self, problem: str, at: ir.Location | None = None) -> None:
        super().__init__(problem)
        self.at = at


class LeftToMlir(Exception):
    """Raised where MLIR's own verifier will report the problem."""


def verify(view: ir.OpView, check: Callable[["Site"], None]) -> bool:
    """Run ``check`` on an op, and emit its problem as an error at the op's location."""
    op = view.operation
    try:
        check(Site(op))
    except LeftToMlir:
        return True
    except Illegal as problem:
        (problem.at or op.location).emit_error(f"'{op.name}' op {problem}")
        return False
    return True


class Site:
    """An op under verification, and the mesh of its module."""

    def __init__(self, op: ir.Operation) -> None:
        self.op = op

    @cached_property
    def mesh(self) -> Mesh:
        op = find_mesh(self.op)
        if op is None:
            raise Illegal("needs a dist.mesh in the module around it")
        if "axes" not in op.attributes:
            raise LeftToMlir
        # The mesh is cached: the verifier of every op asks for it.
        key = str(op.attributes["axes"])
        if key not in _meshes:
            if mesh_problem(op):
                raise LeftToMlir
            _meshes[key] = read_mesh_op(op)
        return _meshes[key]

    @cached_property
    def _codec(self) -> ShardingCodec:
        return ShardingCodec(self.op.context, self.mesh)

    def has(self, name: str) -> bool:
        return name in self.op.attributes

    def attribute(self, name: str, kind: type[A]) -> A:
        """Return a declared attribute of the op. Raises LeftToMlir if it is missing or of another type."""
        if name not in self.op.attributes or not isinstance(self.op.attributes[name], kind):
            raise LeftToMlir
        return self.op.attributes[name]

    def body(self) -> ir.Block:
        """Return the block of the op's body. Raises Illegal unless there is exactly one."""
        blocks = list(self.op.regions[0].blocks)
        if len(blocks) != 1:
            raise Illegal(f"has a body of {len(blocks)} blocks; it must have one")
        return blocks[0]

    def expect_parent(self, *names: str) -> None:
        """Check that the op's parent is one of ``names``. Raises Illegal."""
        if self.op.parent is None or self.op.parent.name not in names:
            raise Illegal(f"must end the body of a {' or a '.join(names)}")

    def integer(self, name: str, least: int, most: int | None = None) -> int:
        value = self.attribute(name, ir.IntegerAttr).value
        if value < least or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise Illegal(f"{name} is {value}; it must be {bounds}")
        return value

    def dim(self, rank: int, name: str = "dim") -> int:
        """Return the op's dim attribute: 0 to rank - 1, never negative. Raises Illegal."""
        if rank == 0:
            raise Illegal("needs a tensor with a dim; this one is a scalar")
        return self.integer(name, 0, rank - 1)

    def reduction(self) -> str:
        reduction = self.attribute("reduction", ir.StringAttr).value
        if reduction not in REDUCTIONS:
            raise Illegal(unknown_reduction(reduction))
        return reduction

    def operand(self, index: int = 0) -> TensorType:
        if index >= len(self.op.operands):
            raise LeftToMlir
        return tensor_type(self.op.operands[index].type, f"operand {index}")

    def result(self, index: int = 0) -> TensorType:
        if index >= len(self.op.results):
            raise LeftToMlir
        return tensor_type(self.op.results[index].type, f"result {index}")

    def expect_result(self, expected: TensorType, because: str) -> None:
        found = self.result()
        if found != expected:
            raise Illegal(f"must give {expected}, not {found}: {because}")

    def axes(self, *, space: bool = True) -> Axes:
        """Return the op's ``axes``. Time axes are allowed unless ``space`` is true, with or without a
        loop.
        """
        axes = tuple(map(self.axis, self.attribute("axes", ir.ArrayAttr)))
        if problem := check_axes(axes, self.mesh):
            raise Illegal(problem)
        for axis in axes if space else ():
            if self.mesh.is_time(axis):
                raise Illegal(f"works over devices, but {axis.name!r} is a time axis: use a dist.loop")
        return axes

    def sharding(self, name: str, rank: int, allow_open: bool = False, allow_time: bool = True) -> Sharding:
        """Return a sharding attribute of the op, checked for a tensor of this rank."""
        return self.sharding_of(self.attribute(name, ShardingAttr), name, rank, allow_open, allow_time)

    def sharding_of(
        self, attribute: ir.Attribute, name: str, rank: int, allow_open: bool = False, allow_time: bool = True
    ) -> Sharding:
        if not isinstance(attribute, ShardingAttr):
            raise Illegal(f"{name} must be a #dist.sharding, not {attribute}")
        self._check_form(attribute, name)
        sharding = self._codec.read(attribute)
        if problem := check_sharding(sharding, rank, self.mesh):
            raise Illegal(f"{name}: {problem}")
        if any(sharding.open) and not allow_open:
            problem = f'open dims ("{OPEN}") are for dist.constraint; here every dim must be closed'
            raise Illegal(f"{name}: {problem}")
        for axis in () if allow_time else sharding.used:
            if self.mesh.is_time(axis):
                raise Illegal(f"{name}: works over devices, but {axis.name!r} is a time axis")
        return sharding

    def loops(self) -> Iterator[Axis]:
        """Yield the axes of the loops that enclose the op, innermost first."""
        parent = self.op.parent
        while parent is not None:
            if parent.name == "dist.loop" and "axis" in parent.attributes:
                yield self.axis(parent.attributes["axis"])
            parent = parent.parent

    def axis(self, attribute: ir.Attribute) -> Axis:
        if isinstance(attribute, ir.StringAttr):
            if all(a.name != attribute.value for a in self.mesh.axes):
                raise Illegal(unknown_axis(attribute.value, self.mesh))
            return self.mesh.whole(attribute.value)
        if not isinstance(attribute, AxisAttr):
            raise Illegal(f'an axis is "name" or #dist.axis<"name", pre, size>, not {attribute}')
        return self._codec.read_axes(ir.ArrayAttr.get([attribute], self.op.context))[0]

    def _check_form(self, attribute: ShardingAttr, name: str) -> None:
        """Check the contents of a sharding's symbol and arrays; MLIR checks only that they exist."""
        mesh, dims, partial = attribute.params
        if str(mesh) != f"@{MESH_SYMBOL}":
            raise Illegal(f"{name}: there is no mesh {mesh}; the module's is @{MESH_SYMBOL}")
        for d, dim in enumerate(ir.ArrayAttr(dims)):
            if not isinstance(dim, ir.ArrayAttr):
                raise Illegal(f"{name}: dim {d} must be a list of axes, not {dim}")
            parts = list(dim)
            is_open = bool(parts) and isinstance(parts[-1], ir.StringAttr) and parts[-1].value == OPEN
            self._axes_of_form(parts[: len(parts) - is_open], name)
        for term in ir.ArrayAttr(partial):
            parts = list(term) if isinstance(term, ir.ArrayAttr) else []
            if len(parts) < 2 or not isinstance(parts[0], ir.StringAttr):
                raise Illegal(f'{name}: a partial term is ["reduction", axes...], not {term}')
            if parts[0].value not in REDUCTIONS:
                raise Illegal(f"{name}: {unknown_reduction(parts[0].value)}")
            self._axes_of_form(parts[1:], name)

    def _axes_of_form(self, parts: list[ir.Attribute], name: str) -> None:
        for part in parts:
            if isinstance(part, ir.StringAttr) and part.value == OPEN:
                raise Illegal(f'{name}: "{OPEN}" must be the last of its dim')
            try:
                self.axis(part)
            except Illegal as problem:
                raise Illegal(f"{name}: {problem}") from None


class Op(ext.Operation):
    """An op of one of our dialects; ``check`` is its verifier."""

    def check(self, site: Site) -> None:
        """Verify the op. Raises Illegal, or LeftToMlir."""
        raise NotImplementedError

    def verify_invariants(self) -> bool:
        return verify(self, self.check)


class RegionOp(Op):
    """An op with a body. ``check_body`` runs after the body's ops are verified."""

    def check_body(self, site: Site) -> None:
        """Verify the body. Raises Illegal, or LeftToMlir."""
        raise NotImplementedError

    def verify_region_invariants(self) -> bool:
        return verify(self, self.check_body)


def tensor_type(type_: ir.Type, what: str) -> TensorType:
    """Return the shape and dtype of a value tensor. Raises Illegal for any other type."""
    try:
        found = read_type(type_)
    except KeyError as dtype:
        raise Illegal(f"{what} has element type {dtype}, which shardc does not know") from None
    if found is None:
        wanted = "a value tensor with static shape, such as !torch.vtensor<[4,8],f32>"
        raise Illegal(f"{what} must be {wanted}, not {type_}")
    return found


def tuple_elements(type_: ir.Type) -> list[ir.Type]:
    """Return the element types of a tuple type. Raises Illegal for any other type."""
    types = element_types(type_)
    if types is None:
        raise Illegal(f"takes and gives tuples of values (torch.prim.TupleConstruct), not {type_}")
    return types


def divided(type_: TensorType, dim: int, ways: int) -> TensorType:
    """Return ``type_`` with the size of ``dim`` divided by ``ways``. Raises Illegal if it does not divide."""
    size = type_.shape[dim]
    if size % ways:
        raise Illegal(f"dim {dim} of size {size} does not divide into {ways} equal blocks")
    return type_.scaled(dim, 1, ways)
