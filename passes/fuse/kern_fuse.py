"""``kern-fuse``: turns groups of ops into ``kern.kernel``s."""

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
from shardc.passes.fuse.structured.candidates import Candidates, find_scans, find_scatters
from shardc.passes.fuse.structured.losses import Losses
from shardc.passes.fuse.structured.single_calls import SingleCalls
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import program_blocks, program_functions


@dataclass(frozen=True)
class KernFuse(Pass):
    """Turns groups of torch ops that save memory traffic as one kernel into a ``kern.kernel`` with a linalg
    body.

    A kernel holds pointwise ops with broadcasts, row reductions with ops before and after them, and column
    reductions. Views and slices become index maps; concatenations of equal parts become a selection by index.
    Collectives, sends, loops and ops without a lowering are not moved. Bodies of loops and of a pipeline's
    stages are fused separately, and kernels with equal bodies are compiled once.

    ``matmuls``: ``extern`` leaves matmuls as calls of ATen; ``generated`` makes them contractions in kernels,
    with ops before and after. ``rounding``: ``fused`` computes chains of 16-bit floats in f32 and rounds at a
    kernel's results; ``eager`` rounds after every op, as eager does. ``lone``: ops that share no kernel with
    another op become kernels, too, which saves nothing and serves to inspect lowerings. ``any_attention``,
    ``grouped_matmuls`` and ``linear_losses`` are capabilities of some targets
    (:mod:`shardc.passes.fuse.grouping.capabilities`); with ``matmuls=generated`` such ops become kernels.
    ``pooled_results``: pointwise ops with results of at least 32 MiB become kernels even alone, whose memory
    is kept from call to call. ``depthwise``: the same for depthwise convolutions with such results.
    ``convolutions``: calls of ``shardc::convolution_direct`` become kernels. ``scans``: cumulated sums
    and products along the last dim become kernels.

    ``forbid-fusion`` and ``force-fusion`` are edges such as ``aten.add.Tensor+gelu@model.py:12``
    (:mod:`shardc.options.fusion_edges`): pairs of ops that must not, or must, share a kernel. An edge that
    matches no ops, or is illegal, is an error.
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
    convolutions: bool = False
    scans: bool = False

    def run(self, module: ir.Module) -> None:
        edges = FusionConstraints.of(self.forbid_fusion, self.force_fusion)
        has = Capabilities(
            self.any_attention,
            self.grouped_matmuls,
            self.linear_losses,
            self.pooled_results,
            self.depthwise,
            self.convolutions,
            self.scans,
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
    """Fuse every block of the module's step, or of a pipeline's stages and ranks.

    Return the calls of each pair considered, numbered as in ``kern.calls``, with the decision on it.
    ``matmuls`` is ``extern``, ``generated``, or a function that decides on each region with matmuls and on
    attention whose kernel is not known to be faster. If ``capabilities`` has kernels for them, it also
    decides on linear layers with a cross entropy and on grouped matmuls, which else stay calls. Calls that
    compute a value in ``exclude`` are not fused, nor are the calls ``without``, which are entries of
    ``kern.calls`` of an earlier fusion of the same module. ``writes`` are (argument, result) pairs: the
    program finally writes the result to the argument, whose memory a kernel may use for it. Those of a
    training step are known. Raises ValueError for unknown ``rounding`` or ``matmuls``, and FusionRefused for
    an illegal edge that ``constraints`` force.
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
        scans = find_scans(candidates) if capabilities.scans else []
        theirs |= {number for scan in scans for number in scan.calls}
        theirs |= frozenset() if lone else _small_convolutions(block, capabilities.depthwise)
        read = partial(read_block, block, CallReader(), exclude, calls | theirs)
        if choose is None:
            block_read = read(stays)
            division = Division(block_read, make_units(block_read))
        else:
            division = divide_matmuls(number, read, choose, constraints, strides)
        marks = Marks(number, names)
        single = SingleCalls(division.read, marks, calls, scatters, linear, scans)
        rewrite = Rewrite(division, bodies, marks, capabilities.pooled_results)
        decisions += rewrite.run(lone, constraints, scatters, linear)
        single.leave(rewrite.sums.numbers)
        single.write(strides, choose, capabilities if matmuls != "extern" else Capabilities())
        release(division.read, division.units)
        if linear.numbers and block.owner.name == LoopOp.OPERATION_NAME:
            drop_captures(block)
    kernels = kernels_of(module)
    place_results(kernels, _written(functions, writes))
    _share_names(kernels, bodies)
    return decisions


def _small_convolutions(block: ir.Block, depthwise: bool) -> frozenset[int]:
    """Return the numbers of convolutions that stay calls: all, or those with small results."""
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
    """Map each new value to the argument that it overwrites, unless the argument is sent without waiting."""
    pairs: dict[ir.Value, ir.Value] = {}
    for function in functions:
        block = function.regions[0].blocks[0]
        results = list(list(block.operations)[-1].operation.operands)
        found = [*writes, *state_writes(function)]
        both = ((results[result], block.arguments[argument]) for argument, result in found)
        pairs.update((new, old) for new, old in both if not is_packed_for(old, SendOp.OPERATION_NAME))
    return pairs


def _share_names(kernels: list[ir.Operation], bodies: Bodies) -> None:
    """Give kernels with equal bodies one name, so that they are compiled once.

    Names are numbered by body, so that names and the compiled library do not change if a model has more
    layers.
    """
    names: dict[tuple[str, ...], ir.Attribute] = {}
    for op in kernels:
        more = (str(op.attributes.get(name, "")) for name in (IN_PLACE, SHAPES))
        stem = kernel_name(op).rpartition("_")[0]
        name = string(f"{stem}_{len(names)}", op.context)
        op.attributes[NAME] = names.setdefault((bodies.text(op), *more), name)


def kernels_of(module: ir.Module) -> list[ir.Operation]:
    """Return the kernels of a program, in order."""
    ops = (view.operation for block in program_blocks(module) for view in block.operations)
    return [op for op in ops if op.name == KernelOp.OPERATION_NAME]
