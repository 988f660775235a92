"""``kern-fuse``: groups of ops become ``kern.kernel``s."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch_mlir import ir

from shardc.cost.work import MAPPED_BYTES
from shardc.diagnostics.passes.fusion import NoSuchFusionEdge
from shardc.dialects.aten.call import CallReader
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.build import string
from shardc.dialects.dist.regions.loop import LoopOp
from shardc.dialects.kern.kernel import IN_PLACE, NAME, SHAPES, KernelOp, kernel_name
from shardc.dialects.kern.strides import argument_strides
from shardc.dialects.pipe.send import SendOp
from shardc.options.numerics import ROUNDINGS
from shardc.passes.fuse.bodies.bodies import Bodies
from shardc.passes.fuse.bodies.captures import drop_captures
from shardc.passes.fuse.bodies.in_place import place_results, state_writes
from shardc.passes.fuse.bodies.marks import Marks
from shardc.passes.fuse.grouping.capabilities import Capabilities
from shardc.passes.fuse.grouping.choose import Division, divide_matmuls
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.grouping.group import Decision
from shardc.passes.fuse.grouping.region import Choose
from shardc.passes.fuse.lower.matmul import matmul_calls
from shardc.passes.fuse.reading.read import read_block, steps_of
from shardc.passes.fuse.reading.unit import make_units, release
from shardc.passes.fuse.reading.values import is_packed_for
from shardc.passes.fuse.rewrite import Rewrite
from shardc.passes.fuse.structured.candidates import Candidates, find_scatters
from shardc.passes.fuse.structured.losses import Losses
from shardc.passes.fuse.structured.single_calls import SingleCalls
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import program_blocks, program_functions


@dataclass(frozen=True)
class KernFuse(Pass):
    """Turns groups of torch ops that save memory traffic as one kernel into a ``kern.kernel`` with a linalg
    body.

    Pointwise ops with broadcasts, row reductions with what is before and after them, column reductions beside
    both; views and slices become index maps, concatenations of equal parts a choice by index. Collectives,
    sends, loops and all ops without a lowering stay where they are, in their order; the bodies of loops and
    of a pipeline's stages are fused each by itself, and kernels of one body compiled once for all of them.
    ``matmuls``: ``extern`` leaves them calls of ATen, ``generated`` makes contractions of them, with what
    stands before and after. ``rounding``: ``fused`` computes chains of 16-bit floats in f32 and rounds at a
    kernel's results, ``eager`` rounds after every op as eager does. ``lone``: ops that share no kernel with
    another become kernels too, which saves nothing, and shows what every lowering makes. ``any_attention``,
    ``grouped_matmuls`` and ``linear_losses`` say what kernels can hold that not every target has
    (:mod:`shardc.passes.fuse.grouping.capabilities`), and do where ``matmuls`` is ``generated``.
    ``pooled_results``: pointwise ops with results of 32 MiB and more become kernels even alone, whose memory
    is kept from call to call. ``depthwise``: so do depthwise convolutions with such results.
    ``forbid-fusion`` and ``force-fusion`` are edges such as ``aten.add.Tensor+gelu@model.py:12``
    (:mod:`shardc.options.fusion_edges`): pairs of ops that must not, and that must share a kernel; one that
    fits no ops, or that cannot be had, is an error.
    """

    name: ClassVar[str] = "kern-fuse"
    rounding: str = "fused"
    lone: bool = False
    forbid_fusion: tuple[str, ...] = ()
    force_fusion: tuple[str, ...] = ()
    matmuls: str = "extern"
    any_attention: bool = False
    grouped_matmuls: bool = False
    linear_losses: bool = False
    pooled_results: bool = False
    depthwise: bool = False

    def run(self, module: ir.Module) -> None:
        edges = FusionConstraints.of(self.forbid_fusion, self.force_fusion)
        has = Capabilities(
            self.any_attention,
            self.grouped_matmuls,
            self.linear_losses,
            self.pooled_results,
            self.depthwise,
        )
        fuse_module(
            module, self.rounding, constraints=edges, matmuls=self.matmuls, capabilities=has, lone=self.lone
        )
        for edge in sorted(edges.unmatched):
            raise NoSuchFusionEdge(edge=edge)


def fuse_module(
    module: ir.Module,
    rounding: str = "fused",
    exclude: frozenset[ir.Value] = frozenset(),
    without: frozenset[str] = frozenset(),
    constraints: FusionConstraints | None = None,
    writes: Sequence[tuple[int, int]] = (),
    matmuls: str | Choose = "extern",
    capabilities: Capabilities = Capabilities(),  # noqa: B008 (it is frozen)
    lone: bool = False,
) -> list[tuple[str, str, Decision]]:
    """Fuse every block of the module's step, or of a pipeline's stages and ranks; return the calls of each
    pair considered, numbered as in ``kern.calls``, with the decision on it.

    ``matmuls``: ``extern``, ``generated``, or what decides on each region with matmuls, and on attention
    whose kernel is not known to be faster; where ``capabilities`` has kernels of them, also on linear layers
    with a cross entropy behind them and on grouped matmuls, which else stay calls.

    Calls that make one of ``exclude`` stay as they are, and so do those ``without``: entries of the
    ``kern.calls`` of an earlier fusion of the same module. ``writes``: (argument, result) pairs where the
    program ends by writing the result to the argument, whose memory a kernel may use for it; a training
    step's own are known. Raises ValueError for unknown ``rounding`` or ``matmuls``, and FusionRefused for an
    edge that ``constraints`` force and that cannot be had.
    """
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding is {rounding!r}; it must be one of {', '.join(ROUNDINGS)}")
    choose = None if isinstance(matmuls, str) else matmuls
    stays = matmul_calls(matmuls) if isinstance(matmuls, str) else frozenset()
    functions = program_functions(module)
    constraints = constraints or FusionConstraints()
    names: Iterator[int] = itertools.count()
    strides = {value: known for function in functions for value, known in argument_strides(function).items()}
    bodies = Bodies(rounding)
    decisions: list[tuple[str, str, Decision]] = []
    for number, block in enumerate(program_blocks(module)):
        calls = frozenset(int(c.partition(".")[2]) for c in without if c.startswith(f"{number}."))
        candidates = Candidates(number, block, exclude, calls, constraints, rounding)
        scatters, theirs = find_scatters(candidates, lone)
        linear = Losses(candidates, strides)
        if capabilities.linear_losses and matmuls != "extern":
            linear.find(choose)
            theirs |= linear.numbers
        theirs |= frozenset() if lone else _small_convolutions(block, capabilities.depthwise)
        read = partial(read_block, block, CallReader(), exclude, calls | theirs)
        if choose is None:
            block_read = read(stays)
            division = Division(block_read, make_units(block_read))
        else:
            division = divide_matmuls(number, read, choose, constraints, strides)
        marks = Marks(number, names)
        single = SingleCalls(division.read, marks, calls, scatters, linear)
        rewrite = Rewrite(division, bodies, marks, capabilities.pooled_results)
        decisions += rewrite.run(lone, constraints, scatters, linear)
        single.write(strides, choose, capabilities if matmuls != "extern" else Capabilities())
        release(division.read, division.units)
        if linear.numbers and block.owner.name == LoopOp.OPERATION_NAME:
            drop_captures(block)
    kernels = kernels_of(module)
    place_results(kernels, _written(functions, writes))
    _share_names(kernels, bodies)
    return decisions


def _small_convolutions(block: ir.Block, depthwise: bool) -> frozenset[int]:
    """The numbers of convolutions that stay calls: all, or those with results in memory that ATen keeps."""
    small: set[int] = set()
    for number, op in enumerate(steps_of(block)):
        if op.name == "torch.aten.convolution":
            made = read_type(op.results[0].type)
            if not depthwise or made is None or not made.is_static or made.size_bytes < MAPPED_BYTES:
                small.add(number)
    return frozenset(small)


def _written(
    functions: Sequence[ir.Operation], writes: Sequence[tuple[int, int]]
) -> dict[ir.Value, ir.Value]:
    """New value -> the argument that takes it, unless that is sent: nobody waits until it has left."""
    pairs: dict[ir.Value, ir.Value] = {}
    for function in functions:
        block = function.regions[0].blocks[0]
        results = list(list(block.operations)[-1].operation.operands)
        found = [*writes, *state_writes(function)]
        both = ((results[result], block.arguments[argument]) for argument, result in found)
        pairs.update((new, old) for new, old in both if not is_packed_for(old, SendOp.OPERATION_NAME))
    return pairs


def _share_names(kernels: list[ir.Operation], bodies: Bodies) -> None:
    """Kernels with equal bodies get one name: they are compiled once. Names are numbered by body: they, and
    so the compiled library, stay as they are if a model has more layers.
    """
    names: dict[tuple[str, ...], ir.Attribute] = {}
    for op in kernels:
        more = (str(op.attributes.get(name, "")) for name in (IN_PLACE, SHAPES))
        stem = kernel_name(op).rpartition("_")[0]
        name = string(f"{stem}_{len(names)}", op.context)
        op.attributes[NAME] = names.setdefault((bodies.text(op), *more), name)


def kernels_of(module: ir.Module) -> list[ir.Operation]:
    """The kernels of a program, in order."""
    ops = (view.operation for block in program_blocks(module) for view in block.operations)
    return [op for op in ops if op.name == KernelOp.OPERATION_NAME]
