"""Shared parts of ``kern.attention`` and its backward as loops over memory.

Scores of a block of queries and a block of keys are stored with the queries in vector lanes,
``[keys, queries]``. So the softmax's maxima and sums are computed lane by lane. Keys and values are read in
place, one element at a time, whatever their strides and head size. Only queries are copied, once for all
keys. Blocks that causality or the mask hides completely are not computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import inf, prod

from torch_mlir import ir
from torch_mlir.dialects import arith

from shardc.backends.body.structured import Structured
from shardc.backends.cpu.attention.turning import Turning
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.buffers import Buffers, Emitted, memory_of
from shardc.backends.cpu.emit.element import Count
from shardc.backends.cpu.emit.loops import bounded_loop
from shardc.backends.cpu.host import vector_lanes, vector_registers
from shardc.backends.cpu.lanes.lanes import Initial, Lanes, Matrix, Product
from shardc.dialects.kern.attention_maps import ROLES, Attention
from shardc.dialects.kern.size import AnySize, Size, hint


@dataclass(frozen=True)
class Rows:
    """Block of queries: ``count`` of them from ``first`` on, of batch ``b`` and head ``h``."""

    b: ir.Value
    h: ir.Value
    first: ir.Value
    count: ir.Value


@dataclass(frozen=True)
class Keys:
    """Block of keys: ``count`` of them from ``first`` on."""

    first: ir.Value
    count: ir.Value


class Blocks:
    """Function ``@name_body`` of one attention, with builders for its loops.

    ``d`` and ``e``: head sizes of keys and values. ``queries`` and ``keys``: sizes of a block. ``blocks``:
    number of blocks of queries of a head; ``row_blocks``: of all heads. Query m sees the keys up to m +
    ``offset``.
    """

    def __init__(
        self, body: Structured, spec: Attention, inputs: list[str], outputs: list[str], module: ir.Module
    ) -> None:
        self.body, self.spec, self.sizes, self.config = body, spec, spec.sizes, Config.of(body.config)
        self.d, self.e = int(spec.sizes["d"]), int(spec.sizes["e"])
        roles = [*(role for role in inputs if role in spec.tensors), *outputs]
        self.outputs = len(outputs)
        types = [memory_of(spec.tensors[role].type, module.context) for role in roles]
        self.buffers = Buffers(body.name, len(body.symbols), types, module)
        self.block = self.buffers.block
        self.thread, self.threads, *arguments = self.block.arguments
        symbols = dict(zip(body.symbols, arguments, strict=False))
        self.offset = spec.q_offset + (Size.of(body.symbols[-1]) if spec.has_place else 0)
        self.memory = dict(zip(roles, arguments[len(symbols) :], strict=True))
        self.registers = vector_registers()
        self.lanes = Lanes(self.block, vector_lanes(), symbols)
        self.queries = block_of_queries(hint(self.sizes["m"]), self.config.queries, self.lanes.width)
        keys, most = self.sizes["n"], self.config.keys
        self.keys = min(most, keys) if isinstance(keys, int) else most
        with ir.InsertionPoint(self.block):
            self.blocks = self._blocks()
            self.row_blocks = self.lanes.times(self.sizes["b"] * self.sizes["h"], self.blocks)
        self.is_wide = str(self.element("k")) == "f32"

    def _blocks(self) -> ir.Value | int:
        rows = self.sizes["m"]
        if isinstance(rows, int):
            return -(-rows // self.queries)
        return arith.ceildivui(self.lanes.index(rows), self.lanes.index(self.queries))

    @property
    def padded_rows(self) -> AnySize:
        """Maximum number of rows in all blocks of a head."""
        return self.blocks * self.queries if isinstance(self.blocks, int) else self.sizes["m"] + self.queries

    def element(self, role: str) -> ir.Type:
        return ir.MemRefType(self.memory[role].type).element_type

    def finish(self, units: Count, products: int) -> Emitted:
        """End the function. Its threads share ``units``; it has ``products`` matmuls over scores."""
        self.buffers.finish()
        work = products * prod(self.sizes[d] for d in "bhmn") * (self.d + self.e)
        # Half of the work are additions, which take a quarter of the time of those in other kernels.
        per_thread = self.config.work_per_thread * (16 if self.spec.causal else 8)
        threads = hint(work) // per_thread
        if isinstance(units, int):
            threads = min(threads, units)
        inputs, outputs, sizes = len(self.memory) - self.outputs, self.outputs, len(self.body.symbols)
        threads, name, buffers = max(1, threads), self.body.name, self.buffers
        return Emitted(name, inputs, outputs, threads, buffers, 0, sizes, work, per_thread)

    # Places

    def buffer(self, rows: AnySize, columns: int, kind: str = "private") -> Matrix:
        """Add an f32 buffer: private to a thread, or ``shared`` by all threads."""
        buffer = self.buffers.add(kind, rows * columns, self.lanes.float)
        return Matrix(buffer, self.lanes.index(0), columns)

    def tensor(self, role: str, b: ir.Value, h: ir.Value, first: Count = 0) -> Matrix:
        """Return rows (queries or keys) of a tensor from ``first`` on.

        ``h``: its own head, or its group's.
        """
        layout = self.spec.tensors[role]
        over, row, column = (layout.stride(d) for d in ("h", *(ROLES[role] + "-")[2:4]))
        start = self.lanes.sum((b, layout.stride("b")), (h, over), (first, row))
        return Matrix(self.memory[role], start, row, column)

    def rows(self, b: ir.Value, h: ir.Value, block: ir.Value) -> Rows:
        first = self.lanes.sum((block, self.queries))
        left = arith.subi(self.lanes.index(self.sizes["m"]), first)
        return Rows(b, h, first, arith.minui(left, self.lanes.index(self.queries)))

    def loop(self, low: Count, high: Count, step: Count = 1) -> AbstractContextManager[ir.Value]:
        return bounded_loop(self.lanes.elements, low, high, step)

    def lane_starts(self) -> range:
        """Return the starts of the vectors in a row of scores."""
        return range(0, self.queries, self.lanes.width)

    # Begin and end of a block of queries

    def clear(self, into: Matrix, rows: Count) -> None:
        start = into.start
        with self.loop(start, self.lanes.sum(start, (rows, into.row_stride)), self.lanes.width) as p:
            self.lanes.store(self.lanes.splat(0.0), into.buffer, p)

    def turn(self, role: str, rows: Rows, columns: int, into: Matrix, scale: float = 1.0) -> None:
        """Set ``into[column, query] = tensor[query, column] * scale``, with 0 for queries beyond the end."""
        lanes = self.lanes

        def finish(value: ir.Value, start: ir.Value) -> ir.Value:
            scaled = value if scale == 1.0 else arith.mulf(value, lanes.splat(scale))
            return lanes.where("slt", arith.subi(rows.count, start), scaled, 0.0)

        source = self.tensor(role, rows.b, rows.h, rows.first)
        Turning(lanes, rows.count, columns, self.queries).into_lanes(source, into, finish)

    def copy(self, source: Matrix, rows: Count, columns: int, into: Matrix, scale: float = 1.0) -> None:
        """Set ``into[row, column] = source[row, column] * scale``."""
        with self.loop(0, rows) as r, self.loop(0, columns) as c:
            value = self.lanes.scalar(source.buffer, source.at(self.lanes, r, c))
            value = value if scale == 1.0 else arith.mulf(value, arith.constant(self.lanes.float, scale))
            self.lanes.put(value, into.buffer, into.at(self.lanes, r, c))

    def turn_back(self, source: Matrix, role: str, rows: Rows, columns: int) -> None:
        """Set ``tensor[query, column] = source[column, query]``."""
        into = self.tensor(role, rows.b, rows.h, rows.first)
        Turning(self.lanes, rows.count, columns, self.queries).from_lanes(source, into)

    # Blocks of keys

    @contextmanager
    def key_blocks(self, high: Count, part: Count = 0, parts: Count = 1) -> Iterator[Keys]:
        """Loop over blocks of the keys before ``high``: every ``parts``-th, from number ``part`` on."""
        lanes = self.lanes
        with self.loop(lanes.sum((part, self.keys)), high, lanes.sum((parts, self.keys))) as first:
            left = arith.subi(lanes.index(high), first)
            yield Keys(first, arith.minui(left, lanes.index(self.keys)))

    def seen_keys(self, rows: Rows) -> ir.Value:
        """Return the end of the keys that some of these queries may see by causality."""
        lanes, count = self.lanes, self.sizes["n"]
        if not self.spec.causal:
            return lanes.index(count)
        end = lanes.sum(rows.first, rows.count, self.offset)
        return arith.minsi(arith.maxsi(end, lanes.index(0)), lanes.index(count))

    def operand(self, role: str, rows: Rows, keys: Keys, wide: Matrix | None) -> Matrix:
        """Return a block of keys or values in f32: in place, or copied into ``wide``."""
        group = self.spec.group
        head = rows.h if group == 1 else arith.divui(rows.h, self.lanes.index(group))
        source = self.tensor(role, rows.b, head, keys.first)
        if wide is None:
            return source
        self.copy(source, keys.count, int(wide.row_stride), wide)
        return wide

    def wide(self, columns: int) -> Matrix | None:
        """Add a buffer for a block of keys or values, if they are not f32."""
        return None if self.is_wide else self.buffer(self.keys, columns)

    def score(self, keys: Matrix, turned: Matrix, rows: Rows, block: Keys, scores: Matrix) -> None:
        """Compute ``scores[key, query]``, with -inf where causality hides a key.

        ``turned``: scaled queries.
        """
        start = self.kept(scores) if "mask" in self.memory else self.zero
        self.product(keys, turned, scores, block.count, self.d, start)
        if self.spec.causal:
            self._hide(rows, block, scores)

    def _hide(self, rows: Rows, block: Keys, scores: Matrix) -> None:
        """Hide keys of the block, starting with the first key that some of these queries do not see."""
        diagonal = self.lanes.sum(rows.first, self.offset)
        first = arith.maxsi(arith.subi(self.lanes.sum(diagonal, 1), block.first), self.lanes.index(0))
        with self.loop(first, block.count) as n:
            beyond = arith.subi(arith.addi(block.first, n), diagonal)
            for start in self.lane_starts():
                at = scores.at(self.lanes, n, start)
                score = self.lanes.load(scores.buffer, at)
                seen = self.lanes.where("sge", self.lanes.sum(beyond, -start), score, -inf)
                self.lanes.store(seen, scores.buffer, at)

    # Products

    def product(
        self, left: Matrix, right: Matrix, into: Matrix, rows: Count, depth: Count, start: Initial
    ) -> None:
        vectors = int(into.row_stride) // self.lanes.width
        Product(left, right, into, rows, depth, vectors).emit(self.lanes, self.registers, start)

    def zero(self, position: ir.Value, vector: int) -> ir.Value:
        return self.lanes.splat(0.0)

    def kept(self, into: Matrix) -> Initial:
        """Return an initial value that continues the sums in ``into``."""
        return lambda position, vector: self.lanes.load(into.buffer, position)


def block_of_queries(count: int, most: int, width: int) -> int:
    """Return the lanes of a block: the multiple of ``width`` up to ``most`` with the fewest empty lanes."""
    return min(range(width, max(width, most) + 1, width), key=lambda size: (-(-count // size) * size, -size))
