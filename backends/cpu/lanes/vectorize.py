"""Vectorization of innermost loops with functions of ``tables.py``, if all their ops are supported.

LLVM's loop vectorizer cannot use table lookups in registers. All other loops are left to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torch_mlir import ir
from torch_mlir.dialects import arith, scf, vector

from shardc.backends.cpu.lanes.expand import is_expanded
from shardc.backends.cpu.lanes.tables import LANES, TABLED
from shardc.backends.cpu.object_code.marks import LOOP, REASSOCIATE, copied
from shardc.dialects.inner_ops import inner_ops
from shardc.dialects.steady import STEADY

_PLAIN = {"math.sqrt", "math.fma", "math.absf", "math.copysign", "math.roundeven", "math.floor", "math.ceil"}
"""Functions that are single instructions."""
_NOTHING = -0.0
"""Neutral element of sums, for additional vectors of partial sums."""
_SUMS = 4
"""Number of vectors of partial sums."""
_SAME, _NEXT, _LANES = "the same in all steps", "one more in each step", "another in each step"


def vectorize(module: ir.Module) -> None:
    """Vectorize such loops of ``module``."""
    with module.context, ir.Location.unknown():
        for loop in [op for op in inner_ops(module.operation) if op.name == "scf.for"]:
            lanes = _Lanes(loop.opview)
            if lanes.understood():
                lanes.write()


@dataclass(eq=False)
class _Lanes:
    """Vectorizer of one loop. ``kinds``: how each value changes between steps; others come from outside."""

    loop: scf.ForOp
    kinds: dict[ir.Value, str] = field(default_factory=dict)

    def understood(self) -> bool:
        """Return True if the loop should and can be vectorized. Fills ``kinds``."""
        *ops, end = (view.operation for view in self.loop.body.operations)
        tabled = any(op.name in TABLED and is_expanded(op) and STEADY not in op.attributes for op in ops)
        if not tabled or _constant(self.loop.operands[2]) != 1:
            return False
        self.kinds[self.loop.induction_variable] = _NEXT
        added = dict(zip(self.loop.inner_iter_args, end.operands, strict=True))
        if not all(_adds(total, accumulator) for accumulator, total in added.items()):
            return False
        for op in ops:
            if any(result in added.values() for result in op.results):
                continue
            kind = self._kind(op)
            if kind is None:
                return False
            self.kinds.update(dict.fromkeys(op.results, kind))
        return self._apart(ops)

    def _kind(self, op: ir.Operation) -> str | None:
        """Return the kind of an op's results; None if the op is not supported."""
        kinds = [self.kinds.get(v, _SAME) for v in op.operands]
        if len(op.regions) or any(v in self.loop.inner_iter_args for v in op.operands):
            return None
        if op.name == "memref.load":
            return {_SAME: _SAME, _NEXT: _LANES}.get(kinds[1])
        if op.name == "memref.store":
            return _LANES if kinds[2] == _NEXT and kinds[0] != _NEXT else None
        if not op.name.startswith(("arith.", "math.")) or len(op.results) != 1:
            return None
        if set(kinds) <= {_SAME}:
            return _SAME
        if isinstance(op.results[0].type, ir.IndexType):
            steps = op.name == "arith.addi" or (op.name == "arith.subi" and kinds[0] == _NEXT)
            return _NEXT if steps and sorted(kinds) == sorted([_NEXT, _SAME]) else None
        if op.name == "arith.index_cast":
            return _LANES if kinds == [_NEXT] else None
        if _NEXT in kinds or (op.name.startswith("math.") and op.name not in _PLAIN and not is_expanded(op)):
            return None
        return _LANES

    def _apart(self, ops: list[ir.Operation]) -> bool:
        """Return True if written buffers are accessed at one position only, so that steps are independent."""
        touched: dict[ir.Value, set[ir.Value]] = {}
        for op in ops:
            if op.name in ("memref.load", "memref.store"):
                buffer, position = list(op.operands)[-2:]
                touched.setdefault(buffer, set()).add(position)
        return all(len(touched[op.operands[1]]) == 1 for op in ops if op.name == "memref.store")

    def write(self) -> None:
        """Replace the loop by vectors: several at once, then single ones, and the last with masked lanes.

        Sums stay vectors in the outer loop, if that only passes them on.
        """
        count = _length(*list(self.loop.operands)[:2])
        copies = _SUMS if len(self.loop.inner_iter_args) else 1
        if count is not None:
            copies = max(1, min(copies, count // LANES))
        around = self._around()
        whole = around or self.loop
        with ir.InsertionPoint(whole.operation):
            nothing = [_splat(_lanes(a.type), _NOTHING) for a in self.loop.inner_iter_args]
            if around is None:
                found = self._vectors(count, [nothing] * copies)
            else:
                found = self._around_vectors(around, count, [nothing] * copies)
            joined = [_joined(vectors) for vectors in zip(*found, strict=True)]
            add, reassociate = vector.CombiningKind.ADD, ir.Attribute.parse(REASSOCIATE)
            ends = [
                vector.reduction(start.type, add, lanes, acc=start, fastmath=reassociate)
                for lanes, start in zip(joined, list(whole.operands)[3:], strict=True)
            ]
        for old, new in zip(whole.results, ends, strict=True):
            old.replace_all_uses_with(new)
        whole.operation.erase()

    def _around(self) -> scf.ForOp | None:
        """Return the outer loop, if it only passes its carried values to this one and on."""
        parent = self.loop.operation.parent
        if parent is None or parent.name != "scf.for" or not len(self.loop.inner_iter_args):
            return None
        around = parent.opview
        end = list(around.body.operations)[-1].operation
        given, made = list(around.inner_iter_args), list(self.loop.results)
        plain = given == list(self.loop.operands)[3:] and made == list(end.operands)
        return around if plain and all(len(list(v.uses)) == 1 for v in (*given, *made)) else None

    def _around_vectors(
        self, around: scf.ForOp, count: int | None, sums: list[list[ir.Value]]
    ) -> list[list[ir.Value]]:
        """Rebuild the outer loop with vectors as carried values, and this loop's vectors in it."""
        low, high, step = list(around.operands)[:3]
        wide = scf.ForOp(low, high, step, [v for vectors in sums for v in vectors])
        *ops, _ = (view.operation for view in around.body.operations)
        at = ops.index(self.loop.operation)
        for op in ops[:at]:
            wide.body.append(op)
        with ir.InsertionPoint(wide.body):
            found = self._vectors(count, _chunks(wide.inner_iter_args, len(sums)))
        for op in ops[at + 1 :]:
            wide.body.append(op)
        with ir.InsertionPoint(wide.body):
            scf.YieldOp([v for vectors in found for v in vectors])
        around.induction_variable.replace_all_uses_with(wide.induction_variable)
        return _chunks(wide.results, len(sums))

    def _vectors(self, count: int | None, sums: list[list[ir.Value]]) -> list[list[ir.Value]]:
        """Build the loops over vectors. ``count``: the number of all steps, if known."""
        low, high = list(self.loop.operands)[:2]
        at_once = len(sums) * LANES
        if count is None:
            length = arith.maxsi(arith.subi(high, low), _index(0))
            whole = arith.subi(length, arith.remui(length, _index(at_once)))
        else:
            whole = _index(count - count % at_once)
        middle = arith.addi(low, whole)
        found = self._steps(low, middle, _index(at_once), sums, None)
        if count is None or count % at_once:
            ragged = count is None or count % LANES != 0
            found[:1] = self._steps(middle, high, _index(LANES), found[:1], high if ragged else None)
        return found

    def _steps(
        self, low: ir.Value, high: ir.Value, step: ir.Value, sums: list[list[ir.Value]], end: ir.Value | None
    ) -> list[list[ir.Value]]:
        """Build a loop with a vector for each list of ``sums``. Lanes from ``end`` on are masked."""
        loop = scf.ForOp(low, high, step, [v for vectors in sums for v in vectors])
        not_unrolled = ir.Attribute.parse("#llvm.loop_annotation<unroll = <disable = true>>")
        loop.operation.attributes[LOOP] = not_unrolled
        made: list[ir.Value] = []
        with ir.InsertionPoint(loop.body):
            for number, held in enumerate(_chunks(loop.inner_iter_args, len(sums))):
                at = loop.induction_variable
                at = arith.addi(at, _index(number * LANES)) if number else at
                mask = None
                if end is not None:
                    mask = vector.create_mask(_lanes(ir.IntegerType.get_signless(1)), [arith.subi(end, at)])
                made += self._step(at, held, mask)
            scf.YieldOp(made)
        return _chunks(loop.results, len(sums))

    def _step(self, at: ir.Value, sums: list[ir.Value], mask: ir.Value | None) -> list[ir.Value]:
        """Build one vector of steps, from ``at`` on; return the sums with their terms added."""
        *ops, end = (view.operation for view in self.loop.body.operations)
        values: dict[ir.Value, ir.Value] = {self.loop.induction_variable: at}
        accumulators = list(self.loop.inner_iter_args)
        totals = {total: n for n, total in enumerate(end.operands)}
        for op in ops:
            if op.results and op.results[0] in totals:
                n = totals[op.results[0]]
                (term,) = (v for v in op.operands if v != accumulators[n])
                term = self._vector(term, values)
                term = arith.negf(term) if op.name == "arith.subf" else term
                if mask is not None:
                    term = arith.select(mask, term, _splat(_lanes(accumulators[n].type), _NOTHING))
                sums[n] = arith.addf(sums[n], term)
            else:
                self._op(op, values, mask)
        return sums

    def _op(self, op: ir.Operation, values: dict[ir.Value, ir.Value], mask: ir.Value | None) -> None:
        if op.name == "memref.store":
            value, (buffer, position) = self._vector(op.operands[0], values), list(op.operands)[1:]
            if mask is None:
                vector.store(value, buffer, [values.get(position, position)])
            else:
                vector.maskedstore(buffer, [values.get(position, position)], mask, value)
            return
        (result,) = op.results
        if self.kinds[result] != _LANES:
            values[result] = copied(op, [values.get(v, v) for v in op.operands]).result
        elif op.name == "memref.load":
            buffer, position = op.operands
            type_, position = _lanes(result.type), values.get(position, position)
            if mask is None:
                values[result] = vector.load(type_, buffer, [position])
            else:
                values[result] = vector.maskedload(type_, buffer, [position], mask, _splat(type_, 0))
        elif op.name == "arith.index_cast":
            first = arith.index_cast(result.type, values.get(op.operands[0], op.operands[0]))
            values[result] = arith.addi(vector.broadcast(_lanes(result.type), first), _numbered(result.type))
        else:
            operands = [self._vector(v, values) for v in op.operands]
            values[result] = copied(op, operands, [_lanes(result.type)]).result

    def _vector(self, value: ir.Value, values: dict[ir.Value, ir.Value]) -> ir.Value:
        found = values.get(value, value)
        return found if isinstance(found.type, ir.VectorType) else vector.broadcast(_lanes(found.type), found)


def _adds(total: ir.Value, accumulator: ir.Value) -> bool:
    """Return True if ``total`` is a reassociable sum of the accumulator and a term, with no other readers.

    It may also be the accumulator less a term.
    """
    if isinstance(total, ir.BlockArgument) or not isinstance(total.type, ir.F32Type):
        return False
    op = total.owner.operation
    flags = str(op.attributes["fastmath"]) if "fastmath" in op.attributes else ""
    read = [use.owner.operation for use in accumulator.uses]
    adds = op.name == "arith.addf" or (op.name == "arith.subf" and op.operands[0] == accumulator)
    return adds and "reassoc" in flags and read == [op] and len(list(total.uses)) == 1


def _length(low: ir.Value, high: ir.Value) -> int | None:
    """Return the number of steps, if known."""
    first, last = _constant(low), _constant(high)
    if first is not None and last is not None:
        return max(0, last - first)
    if isinstance(high, ir.BlockArgument) or high.owner.operation.name != "arith.addi":
        return None
    a, b = high.owner.operation.operands
    return _constant(b) if a == low else _constant(a) if b == low else None


def _constant(value: ir.Value) -> int | None:
    if isinstance(value, ir.BlockArgument) or value.owner.operation.name != "arith.constant":
        return None
    return ir.IntegerAttr(value.owner.operation.attributes["value"]).value


def _chunks(values: Iterable[ir.Value], count: int) -> list[list[ir.Value]]:
    """Split values into ``count`` lists of equal length."""
    found = list(values)
    each = len(found) // count
    return [found[k * each : (k + 1) * each] for k in range(count)]


def _joined(vectors: Sequence[ir.Value]) -> ir.Value:
    """Sum vectors pairwise."""
    found = list(vectors)
    while len(found) > 1:
        pairs = [found[k : k + 2] for k in range(0, len(found), 2)]
        found = [arith.addf(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return found[0]


def _lanes(element: ir.Type) -> ir.Type:
    return ir.VectorType.get([LANES], element)


def _numbered(element: ir.Type) -> ir.Value:
    lanes = _lanes(element)
    numbers = [ir.IntegerAttr.get(element, n) for n in range(LANES)]
    return arith.constant(lanes, ir.DenseElementsAttr.get(numbers, lanes))


def _splat(lanes: ir.Type, number: float) -> ir.Value:
    element = ir.VectorType(lanes).element_type
    integer = isinstance(element, ir.IntegerType)
    scalar = ir.IntegerAttr.get(element, int(number)) if integer else ir.FloatAttr.get(element, number)
    return arith.constant(lanes, ir.DenseElementsAttr.get_splat(lanes, scalar))


def _index(number: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), number)
