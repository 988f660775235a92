"""Regions: matmuls or attention that can be calls or kernels, with all ops that this choice affects."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from torch_mlir import ir

from shardc.cost.work import LARGE_FLOPS, SMALL_FLOPS
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import is_constant, target_name
from shardc.dialects.aten.schema import position
from shardc.dialects.aten.types import Order, read_type
from shardc.dialects.kern.strides import Strides, note_strides
from shardc.passes.fuse.grouping.shift import shift_slices
from shardc.passes.fuse.linear_loss.find import LinearLoss
from shardc.passes.fuse.reading.graph import Block, Node
from shardc.passes.fuse.reading.unit import Units
from shardc.passes.fuse.reading.values import LIST, owner_of
from shardc.passes.fuse.reading.view import VIEWS
from shardc.passes.manager.attributes import drop_attributes
from shardc.passes.manager.program import STEP

DRAW = "shardc.uniform"
_PLACE = ("dist.name", "dist.phase", "dist.shardings")
"""Attributes that depend on an op's position in its program."""
_VIEWS = frozenset(f"torch.{target}" for target in VIEWS)


@dataclass
class Region:
    """Region of a program on which one choice is made.

    It is a set of matmuls with all calls that share a kernel with them, directly or indirectly, under either
    choice; an attention; or a linear layer with its cross entropy. ``calls``: numbers of its matmuls, its
    attention, or its linear layer's product, as in ``kern.calls``. ``module``: program of the region alone;
    its results are the values that other ops read. Equal regions have equal texts without locations.
    """

    calls: tuple[str, ...]
    module: ir.Module = field(repr=False)
    spared_bytes: int = 0
    """Bytes of memory that only the form with calls needs: logits of a linear layer with a cross entropy."""
    beside: Sequence[Region] = field(default=(), repr=False, compare=False)
    """All regions of its block, including itself, in the order of decisions."""


@dataclass(frozen=True)
class Verdict:
    """Verdict on a region: whether its matmuls or attention are parts of kernels, and the reason in words.

    ``library``: library of ``shardc.runtime.operators.attention`` that computes an attention outside
    kernels; empty for the operator's own choice.
    """

    generated: bool
    why: str
    library: str = ""


Choose = Callable[[Region], Verdict]


@dataclass(frozen=True)
class EveryRegion:
    """Wrapper of a ``choose`` that decides without running regions, so that their size does not matter."""

    choose: Choose

    def __call__(self, region: Region) -> Verdict:
        return self.choose(region)


def is_asked(flops: int, choose: Choose) -> bool:
    """Return whether ``choose`` decides on regions of ``flops`` floating-point operations."""
    return isinstance(choose, EveryRegion) or SMALL_FLOPS <= flops <= LARGE_FLOPS


def find_regions(
    number: int,
    read: Block,
    together: Units,
    apart: Units,
    strides: Mapping[ir.Value, Strides],
    choose: Choose,
) -> Iterator[Region]:
    """Yield the regions of block ``number``, in order.

    Calls that read numbers known only at run time are in no region. Regions that are too small or too large
    for ``choose`` are left out.

    Args:
        together: Groups of the block with matmuls in kernels.
        apart: Groups of the block with all matmuls as calls.
        strides: Strides of the program's arguments that are not contiguous.
    """
    flops = {n.call: matmul_flops(n) for unit in together.groups for n in unit.nodes if n.contracts}
    groups = [unit.calls for units in (together, apart) for unit in units.groups]
    for calls in sorted(_connected(groups), key=min):
        matmuls = sorted(calls & flops.keys())
        asked = bool(matmuls) and is_asked(sum(flops[m] for m in matmuls), choose)
        module = _program(read.block, [read.steps[n].op for n in sorted(calls)], strides) if asked else None
        if module is not None:
            yield Region(tuple(f"{number}.{m}" for m in matmuls), module)


def call_region(number: int, read: Block, call: int, strides: Mapping[ir.Value, Strides]) -> Region | None:
    """Return a call of block ``number`` as a region, or None."""
    module = _program(read.block, [read.steps[call].op], strides)
    return None if module is None else Region((f"{number}.{call}",), module)


def loss_region(
    number: int, steps: Sequence[ir.Operation], loss: LinearLoss, strides: Mapping[ir.Value, Strides]
) -> Region | None:
    """Return a linear layer with its cross entropy, forward and backward, as a region, or None."""
    module = _program(loss.first.block, [steps[n] for n in sorted(loss.numbers)], strides)
    return None if module is None else Region((f"{number}.{loss.forward[0]}",), module, loss.spared_bytes)


def _connected(groups: Iterable[set[int]]) -> list[set[int]]:
    """Return the unions of groups that share numbers."""
    found: dict[int, set[int]] = {}
    for group in groups:
        whole = set(group).union(*(found[number] for number in group if number in found))
        found.update(dict.fromkeys(whole, whole))
    return list({id(whole): whole for whole in found.values()}.values())


def matmul_flops(contraction: Node) -> int:
    """Return the floating-point operations of a contraction."""
    atoms = itertools.chain(*contraction.out_dims, contraction.reduced)
    return 2 * prod(int(contraction.space.sizes[a]) for a in contraction.space.resolve(atoms))


def _program(
    block: ir.Block, calls: Sequence[ir.Operation], strides: Mapping[ir.Value, Strides]
) -> ir.Module | None:
    """Return a module whose step computes ``calls``, in the order of ``block``, from the values they read.

    None if these are not only tensors of known sizes.
    """
    with block.owner.context, ir.Location.unknown():
        program = _Program(calls)
        for value in program.arguments:
            type_ = read_type(value.type)
            if type_ is None or not type_.is_static or isinstance(strides.get(value), Order):
                return None
        module, block = _function(list(program.arguments), program.results, strides)
        program.write(block)
        shift_slices(block, _VIEWS)
        return module


class _Program:
    """Ops of a region in order, each after the constants, lists and views that it reads.

    Random draws are renumbered, because each layer of a model has other numbers.
    """

    def __init__(self, calls: Sequence[ir.Operation]) -> None:
        self._ops: dict[ir.Operation, None] = {}
        self.arguments: dict[ir.Value, None] = {}
        inside = set(calls)
        for op in calls:
            self._take(op, inside)
        self.results = [r for op in calls for r in op.results if _is_read(r, self._ops.keys())]

    def _take(self, op: ir.Operation, inside: set[ir.Operation]) -> None:
        if op in self._ops:
            return
        draw = _draw(op)
        for operand in (value for number, value in enumerate(op.operands) if number != draw):
            maker = owner_of(operand)
            if maker is not None and (maker in inside or maker.name in _VIEWS or is_constant(maker)):
                self._take(maker, inside)
            else:
                self.arguments[operand] = None
        self._ops[op] = None

    def write(self, block: ir.Block) -> None:
        """Write copies of the ops at the end of ``block``, whose arguments are the region's."""
        values = dict(zip(self.arguments, block.arguments, strict=True))
        ip, builder, draws = ir.InsertionPoint(block), CallBuilder(block), itertools.count()
        for op in self._ops:
            copy, draw = op.clone(ip=ip), _draw(op)
            drop_attributes(copy, *_PLACE)
            for number, operand in enumerate(op.operands):
                given = builder.argument(next(draws), "int", ip) if number == draw else values[operand]
                copy.operands[number] = given
            values.update(zip(op.results, copy.results, strict=True))
        ir.Operation.create("func.return", [], [values[r] for r in self.results], ip=ip)


def _draw(op: ir.Operation) -> int | None:
    """Return which operand of a random draw is its number in the program; None for other ops."""
    return position(DRAW, "op") if op.name == "torch.operator" and target_name(op) == DRAW else None


def _is_read(value: ir.Value, taken: Collection[ir.Operation]) -> bool:
    """Return whether an op that is not in ``taken`` reads the value or a view of it."""
    for use in value.uses:
        op = use.owner.operation
        seen_otherwise = op.name in _VIEWS or op.name == LIST
        if any(_is_read(r, taken) for r in op.results) if seen_otherwise else op not in taken:
            return True
    return False


def _function(
    arguments: Sequence[ir.Value], results: Sequence[ir.Value], strides: Mapping[ir.Value, Strides]
) -> tuple[ir.Module, ir.Block]:
    types = [v.type for v in arguments], [v.type for v in results]
    names = (ir.StringAttr.get(f"in{number}") for number in range(len(arguments)))
    attributes = {
        "sym_name": ir.StringAttr.get(STEP),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(*types)),
        "arg_attrs": ir.ArrayAttr.get([ir.DictAttr.get({"dist.name": name}) for name in names]),
    }
    module = ir.Module.create()
    ip = ir.InsertionPoint(module.body)
    function = ir.Operation.create("func.func", [], [], attributes, regions=1, ip=ip)
    note_strides(function, [strides.get(v) for v in arguments])
    locations = [ir.Location.unknown()] * len(arguments)
    return module, ir.Block.create_at_start(function.regions[0], types[0], locations)
