"""Kernels of single calls: attention, grouped matmuls, convolutions, linear cross entropies, indexed sums."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from torch_mlir import ir

from shardc.dialects.aten.call import target_name
from shardc.dialects.kern.strides import Strides
from shardc.passes.fuse.bodies.marks import Marks, name_results, phase_of
from shardc.passes.fuse.grouping.capabilities import Capabilities
from shardc.passes.fuse.grouping.region import Choose, EveryRegion, Verdict, call_region, is_asked
from shardc.passes.fuse.linear_loss.find import LinearLoss
from shardc.passes.fuse.linear_loss.kernel import LINEAR_LOSSES, LinearLossKernels
from shardc.passes.fuse.reading.graph import Block, Step, Value
from shardc.passes.fuse.reading.values import type_of
from shardc.passes.fuse.structured.attention import ATTENTION, AttentionKernels, call_library
from shardc.passes.fuse.structured.convolution import KERNEL, ConvolutionKernels
from shardc.passes.fuse.structured.grouped_matmul import GROUPED, GroupedMatmulKernels
from shardc.passes.fuse.structured.losses import Losses
from shardc.passes.fuse.structured.scan import Scan, ScanKernels
from shardc.passes.fuse.structured.scatter import Scatter, ScatterKernels
from shardc.passes.ingest.torch_share import drop_unread, unread


class SingleCalls:
    """Single calls of a block, except those of ``without``.

    Create this object before the block's groups are rewritten. Calls that are unread after the rewrite are
    erased and do not become kernels.
    """

    def __init__(
        self,
        read: Block,
        marks: Marks,
        without: frozenset[int],
        scatters: Sequence[Scatter],
        losses: Losses,
        scans: Sequence[Scan] = (),
    ) -> None:
        self._read, self._block, self._marks = read, read.block, marks
        self._scatters, self._losses, self._scans = scatters, losses, scans
        calls = {s.number for s in read.steps if s.target in _TARGETS} - without
        calls |= {number for found in (*scatters, *scans) for number in found.numbers} | losses.numbers
        self._waiting = {number: read.steps[number].op for number in sorted(calls)}

    def write(self, strides: Mapping[ir.Value, Strides], choose: Choose | None, has: Capabilities) -> None:
        """Replace calls by kernels. If ``choose`` is None, every supported call becomes a kernel.

        See :func:`shardc.passes.fuse.kern_fuse.fuse_module` for ``choose`` and ``has``.
        """
        self._sweep()
        self._write_attentions(strides, choose, has)
        if has.grouped_matmuls:
            self._write_grouped(strides, choose)
        if has.convolutions:
            self._write_convolutions()
        if has.linear_losses:
            self._write_linear_losses()
        self._write_scatters()
        self._write_scans()
        self._write_losses()

    def leave(self, numbers: Iterable[int]) -> None:
        """Leave out calls that other kernels have replaced."""
        for number in numbers:
            self._waiting.pop(number, None)

    def _sweep(self) -> None:
        """Erase unread ops, and drop them from the waiting calls."""
        if self._waiting:
            gone = unread(self._block)
            self._waiting = {n: op for n, op in self._waiting.items() if gone.isdisjoint(op.results)}
        drop_unread(self._block)

    def _write_attentions(
        self, strides: Mapping[ir.Value, Strides], choose: Choose | None, has: Capabilities
    ) -> None:
        """Write kernels for attention calls if that is faster; for all if backends have them and no
        ``choose`` is given.
        """
        attentions, every = None, has.any_attention and choose is None
        for step in self._take(ATTENTION):
            attentions = attentions or AttentionKernels(
                self._block, strides, self._read.symbols, places=not has.any_attention
            )
            flops, phase = attentions.flops(step.op), phase_of(step.op)
            if not flops:
                continue
            faster = every or (attentions.is_faster(step.op) and not isinstance(choose, EveryRegion))
            verdict = None if faster else self._verdict(step, flops, strides, choose)
            if verdict is not None:
                faster = verdict.generated
                if verdict.library:
                    call_library(step.op, verdict.library)
            if faster:
                self._marks.write(attentions.write(step.op, self._marks.name([step])), [step], phase)
        self._sweep()

    def _write_grouped(self, strides: Mapping[ir.Value, Strides], choose: Choose | None) -> None:
        """Write kernels for the grouped matmuls that ``choose`` selects; for all if it is None."""
        grouped = GroupedMatmulKernels(self._read.symbols)
        for step in self._take((GROUPED,)):
            flops = grouped.flops(step.op)
            verdict = self._verdict(step, flops, strides, choose) if flops else None
            if flops and (choose is None or (verdict is not None and verdict.generated)):
                self._replace([step], *grouped.write(step.op, self._marks.name([step])))
        self._sweep()

    def _write_convolutions(self) -> None:
        """Write kernels for calls of direct convolutions; whoever wrote the calls decided that."""
        convolutions = ConvolutionKernels(self._read.symbols)
        for step in self._take((KERNEL,)):
            self._replace([step], *convolutions.write(step.op, self._marks.name([step])))
        self._sweep()

    def _verdict(
        self, step: Step, flops: int, strides: Mapping[ir.Value, Strides], choose: Choose | None
    ) -> Verdict | None:
        """Return the decision of ``choose`` on a call; None if it is not asked, or the call is no region."""
        if choose is None or not is_asked(flops, choose):
            return None
        region = call_region(self._marks.number, self._read, step.number, strides)
        return None if region is None else choose(region)

    def _replace(self, steps: Sequence[Step], kernel: ir.Operation, out: ir.Value) -> None:
        """Replace ``steps`` by a kernel, and the last step's first result by the kernel's."""
        old = steps[-1].op.results[0]
        self._marks.write(kernel, steps, phase_of(steps[0].op))
        name_results(out.owner, [Value(type_of(old), old)])
        old.replace_all_uses_with(out)
        for step in reversed(steps):
            step.op.erase()

    def _write_linear_losses(self) -> None:
        """Write kernels for calls of a linear cross entropy; whoever wrote the calls decided that."""
        kernels = LinearLossKernels(self._read.symbols)
        for step in self._take(LINEAR_LOSSES):
            if kernels.has(step.op):
                phase = phase_of(step.op)
                self._marks.write(kernels.write(step.op, self._marks.name([step]))[0], [step], phase)
        self._sweep()

    def _write_scatters(self) -> None:
        """Write kernels for sums at computed indices, including the sums with their initial values."""
        kernels = ScatterKernels(self._block, self._read.symbols)
        for scatter in self._scatters:
            if not self._waiting.keys() >= set(scatter.numbers):
                continue
            steps = [self._read.steps[number] for number in scatter.numbers]
            for number in scatter.numbers:
                del self._waiting[number]
            self._replace(steps, *kernels.write(scatter, self._marks.name(steps)))
        if self._scatters:
            self._sweep()

    def _write_scans(self) -> None:
        """Write kernels for scans along the last dim."""
        kernels = ScanKernels(self._read.symbols)
        for scan in self._scans:
            if self._waiting.keys() >= set(scan.numbers):
                steps = [self._read.steps[number] for number in scan.numbers]
                for number in scan.numbers:
                    del self._waiting[number]
                written = kernels.write(scan, [step.op for step in steps], self._marks.name(steps))
                self._replace(steps, *written)
        if self._scans:
            self._sweep()

    def _write_losses(self) -> None:
        """Write two kernels for each linear layer with a cross entropy."""
        kernels = LinearLossKernels(self._read.symbols)
        for loss, raised in self._losses.write(self._waiting.keys()):
            for op, numbers in ((raised.forward, loss.forward), (raised.backward, loss.backward)):
                if op is not None:
                    self._write_loss(kernels, loss, op, [self._read.steps[number] for number in numbers])
        self._waiting.clear()
        drop_unread(self._block)

    def _write_loss(
        self, kernels: LinearLossKernels, loss: LinearLoss, op: ir.Operation, steps: list[Step]
    ) -> None:
        """Write the kernel of an op that replaces ``steps``; gradients keep their names."""
        name = self._marks.numbered(target_name(op).removeprefix("shardc."))
        op, made = kernels.write(op, name)
        self._marks.write(op, steps, phase_of(steps[0].op))
        olds = [loss.values[role] for role in ("drows", "dweight") if role in made]
        if olds:
            unpack = next(iter(made.values())).owner
            bias = loss.values["dbias"] if "dbias" in made else None
            name_results(unpack, [Value(type_of(old), old) for old in olds], bias)

    def _take(self, targets: Collection[str]) -> Iterator[Step]:
        """Yield the waiting calls of ``targets``, and remove them from the waiting calls."""
        for step in self._read.steps:
            if step.target in targets and self._waiting.pop(step.number, None) is not None:
                yield step


_TARGETS = frozenset((*ATTENTION, GROUPED, KERNEL, *LINEAR_LOSSES))
