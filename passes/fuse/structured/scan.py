"""Kernels of scans along the last dim, also from the end between two flips.

Scans for extrema only have a kernel if nothing reads their indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from shardc.dialects.aten.call import Call, CallReader
from shardc.dialects.dist.build import At
from shardc.dialects.kern.scan import DTYPES, scan
from shardc.dialects.kern.yield_op import yield_values
from shardc.passes.fuse.reading.symbols import Symbols
from shardc.passes.fuse.reading.values import owner_of, target_of
from shardc.passes.fuse.structured.write_kernel import write_kernel

KINDS = {"aten.cumsum": "sum", "aten.cumprod": "product", "aten.cummax": "max", "aten.cummin": "min"}
FLIP = "aten.flip"
SHORTEST = 16
"""Least number of steps: one vector of f32."""

IsFree = Callable[[int], bool]
MayJoin = Callable[[int, int], bool]


@dataclass(frozen=True)
class Scan:
    """A scan that becomes a kernel. ``numbers``: those of its steps, in order.

    ``flip``: number of the flip whose result is scanned, if the scan is from the end; the second step is a
    flip then, too.
    """

    kind: str
    numbers: tuple[int, ...]
    flip: int | None = None

    @property
    def calls(self) -> frozenset[int]:
        """Return the numbers of the calls that no other kernel may take."""
        return frozenset((*self.numbers, *(() if self.flip is None else (self.flip,))))


class ScanKernels:
    """Conversion of a block's scans along the last dim into kernels."""

    def __init__(self, symbols: Symbols) -> None:
        self._reader, self._symbols = CallReader(), symbols

    def find(self, steps: Sequence[ir.Operation], is_free: IsFree, may_join: MayJoin) -> Iterator[Scan]:
        """Yield the scans that become kernels.

        ``is_free`` returns whether a step may be in a kernel, ``may_join`` whether two may share one.
        """
        numbers = {op: number for number, op in enumerate(steps)}
        for number, op in enumerate(steps):
            target = target_of(op)
            if target not in KINDS or not is_free(number):
                continue
            call = self._reader.read(op)
            if not self._covers(call):
                continue
            before, after = owner_of(call.operands[0]), self._only_reader(op)
            around = [f for f in (before, after) if f is not None and f in numbers]
            flips = [numbers[f] for f in around if self._is_flip(f)]
            alone = before is not None and len(list(before.results[0].uses)) == 1
            if len(flips) == 2 and alone and all(map(is_free, flips)) and may_join(number, flips[1]):
                yield Scan(KINDS[target], (number, flips[1]), flips[0])
            else:
                yield Scan(KINDS[target], (number,))

    def write(self, found: Scan, steps: Sequence[ir.Operation], name: str) -> tuple[ir.Operation, ir.Value]:
        """Write the kernel of a scan before the last of its ``steps``; return it and its result."""
        at = At(loc=steps[-1].location, ip=ir.InsertionPoint(steps[-1]))
        (x,), reverse = self._reader.read(steps[0]).operands, found.flip is not None
        if reverse:
            (x,) = self._reader.read(x.owner).operands
        type_ = self._symbols.known_type(steps[-1].results[0])
        (given,), values, made, inside = write_kernel(name, [x], [type_], self._symbols, **at)
        yield_values([scan(given, found.kind, reverse, **inside)], **inside)
        return made, values[0]

    def _covers(self, call: Call) -> bool:
        """Return whether a call scans the last dim of a tensor that a kernel reads."""
        given, (made, *_), (_, *others) = call.spec["self"], call.spec.results, call.results
        if made is None or any(True for other in others for _ in other.uses):
            return False
        if given != made or not made.is_static or made.dtype not in DTYPES:
            return False
        if not made.shape or 0 in made.shape or made.shape[-1] < SHORTEST:
            return False
        return call.spec["dim"] % len(made.shape) == len(made.shape) - 1

    def _is_flip(self, op: ir.Operation) -> bool:
        """Return whether ``op`` flips the last dim alone."""
        if target_of(op) != FLIP:
            return False
        spec = self._reader.read(op).spec
        rank = len(spec["self"].shape)
        return [d % rank for d in spec["dims"]] == [rank - 1]

    def _only_reader(self, op: ir.Operation) -> ir.Operation | None:
        """Return the call of the block that alone reads the result of ``op``, once."""
        readers = [use.owner.operation for use in op.results[0].uses]
        return readers[0] if len(readers) == 1 and readers[0].block == op.block else None
