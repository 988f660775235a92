"""Loops cut into sections in each of which addresses are linear in the loop's index.

A concatenation, a pad, a roll or the gradient of a slice reads at an index that comparisons choose. In a
vector loop each such read would gather its lanes one by one. Between the numbers at which comparisons change,
they are constants, and lanes are adjacent. A quotient and a rest by a constant, as in the gradient of
windows, become the indices of two loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch_mlir import ir
from torch_mlir.dialects import arith, scf

from shardc.backends.cpu.lanes.forms import Form, answer, questions, signs
from shardc.backends.cpu.lanes.ranges import Range, Ranges, fits, ranges_in
from shardc.backends.cpu.object_code.marks import LONG_LOOP, LOOP, VECTORS, copied
from shardc.dialects.inner_ops import inner_ops

SHORTEST = 32
"""Least number of steps of a loop that is cut."""
SHORTEST_INNER = 16
"""Least divisor for which a loop is split into two: a vector of f32."""
WRITTEN_OUT = 4
"""Most divisor whose rests are written out in the loop of quotients, as in an upsampling by 2."""
MAX_SECTIONS, MAX_OPS = 16, 1200
"""Limits of a loop's sections, and of the ops in all of them."""
MAX_FOUND, MAX_OPS_OF_JOINED = 64, 4000
"""The same before short sections are joined, and after it."""
_DIVIDES = ("arith.divsi", "arith.divui", "arith.floordivsi", "arith.remsi", "arith.remui")
_SAME = ("arith.index_cast", "arith.extsi", "arith.trunci")
_QUOTIENTS = _DIVIDES[:3]


def cut_loops(module: ir.Module) -> None:
    """Cut the innermost loops of ``module`` where that makes addresses linear."""
    with module.context, ir.Location.unknown():
        for function in module.body:
            ranges = ranges_in(function.operation)
            for loop in [op.opview for op in inner_ops(function.operation) if op.name == "scf.for"]:
                assert isinstance(loop, scf.ForOp)
                body = [view.operation for view in loop.body.operations]
                if not any(len(inner.regions) for inner in body):
                    _Cutter(loop, ranges, body[:-1], body[-1]).cut()


@dataclass(frozen=True)
class _Section:
    """Values that the indices of a section's loops take, from the outer to the inner loop."""

    dims: tuple[Range, ...]


@dataclass(eq=False)
class _Cutter:
    """``addresses``: ops of the loop that compute addresses."""

    loop: scf.ForOp
    ranges: Ranges
    ops: list[ir.Operation]
    end: ir.Operation
    addresses: set[ir.Operation] = field(default_factory=set)

    def cut(self) -> None:
        """Replace the loop by its sections, if there are several or two loops."""
        low, high, step = list(self.loop.operands)[:3]
        steps = self.ranges.get(self.loop.induction_variable)
        if steps is None or steps[1] - steps[0] + 1 < SHORTEST or self.ranges.get(step) != (1, 1):
            return
        self._find_addresses()
        if not self.addresses:
            return
        self.is_static = all(self._constant(v) is not None for v in (low, high))
        self.by, self.shift = self._divisor() if self.is_static else (0, 0)
        with ir.InsertionPoint(self.loop.operation):
            self.quotient = _index(0)  # stands for the index of the outer one of two loops
        wholes = self._wholes(steps) if self.by else [_Section((steps,))]
        sections = [part for whole in wholes for part in self._cut(whole)]
        most = MAX_OPS
        if not self.by and not self._are_few(sections, most):
            sections, most = _joined(sections), MAX_OPS_OF_JOINED
        if self._are_few(sections, most) and (self.by or len(sections) > 1):
            self._write(sections)

    def _are_few(self, sections: Sequence[_Section], most: int) -> bool:
        return len(sections) <= MAX_SECTIONS and len(sections) * len(self.ops) <= most

    def _find_addresses(self) -> None:
        """Find the ops that compute addresses, if one of them compares or divides."""
        wanted = set[ir.Value]()
        for op in reversed(self.ops):
            if op.name in ("memref.load", "memref.store"):
                wanted.update(list(op.operands)[1 if op.name == "memref.load" else 2 :])
            if not wanted.isdisjoint(op.results) and op.name.startswith(("arith.", "math.")):
                wanted.update(op.operands)
                self.addresses.add(op)
        names = {op.name for op in self.addresses}
        decided = {"arith.cmpi", "arith.maxsi", "arith.minsi", "math.absi", *_DIVIDES}
        if names.isdisjoint(decided):
            self.addresses = set()

    def _constant(self, value: ir.Value) -> int | None:
        low, high = self.ranges.get(value, (0, 1))
        return low if low == high else None

    def _divisor(self) -> tuple[int, int]:
        """Return the first constant by which the index plus a shift is divided, and the shift; or zeros."""
        index = self.loop.induction_variable
        low, high = self.ranges[index]
        forms: dict[ir.Value, Form] = {index: Form(0, {index: 1})}
        for op in self.ops:
            if op in self.addresses and op.name in _DIVIDES:
                over, by = forms.get(op.operands[0]), self._constant(op.operands[1])
                if over is None or list(over.terms.items()) != [(index, 1)] or low + over.constant < 0:
                    continue
                if by is not None and (1 < by <= WRITTEN_OUT or by >= SHORTEST_INNER) and by <= high - low:
                    return by, over.constant
            self._follow(op, forms, self.ranges)
        return 0, 0

    def _wholes(self, steps: Range) -> list[_Section]:
        """Return the ranges of quotient and rest: an incomplete first one, the whole ones, and a last one."""
        low, high, by = steps[0] + self.shift, steps[1] + self.shift + 1, self.by
        if low // by == (high - 1) // by:
            return [_Section(((low // by, low // by), (low % by, (high - 1) % by)))]
        found = list[_Section]()
        if low % by:
            found.append(_Section(((low // by, low // by), (low % by, by - 1))))
        first, last = -(-low // by), high // by
        if first < last:
            found.append(_Section(((first, last - 1), (0, by - 1))))
        if high % by:
            found.append(_Section(((last, last), (0, high % by - 1))))
        return found

    def _cut(self, section: _Section) -> list[_Section]:
        """Return the parts of a section in which comparisons of addresses are constants, in order."""
        pending, found = [section], list[_Section]()
        while pending and len(found) + len(pending) <= (MAX_SECTIONS if self.by else MAX_FOUND):
            section = pending.pop()
            if (cut := self._first_cut(section)) is None:
                found.append(section)
                continue
            dim, at = cut
            low, high = section.dims[dim]
            for ends in ((at, high), (low, at - 1)):  # the first part is on top
                pending.append(_Section((*section.dims[:dim], ends, *section.dims[dim + 1 :])))
        return found + pending[::-1]

    def _first_cut(self, section: _Section) -> tuple[int, int] | None:
        """Return the dim and the number at which a comparison for an address changes."""
        dims, ranges, forms = self._symbols(section)
        for op in self.ops:
            if op in self.addresses:
                operands = [self._form(v, forms) for v in op.operands]
                for asked in questions(op, operands, ranges):
                    for dim, symbol in enumerate(dims):
                        if (at := _change(asked, symbol, ranges)) is not None:
                            return dim, at
            self._follow(op, forms, ranges)
        return None

    def _symbols(self, section: _Section) -> tuple[list[ir.Value], Ranges, dict[ir.Value, Form]]:
        """Return values that stand for the indices of a section, their ranges, and the loop index's form."""
        index = self.loop.induction_variable
        dims = [index] if len(section.dims) == 1 else [self.quotient, index]
        ranges = {**self.ranges, **dict(zip(dims, section.dims, strict=True))}
        return dims, ranges, {index: self._index(dims)}

    def _index(self, dims: Sequence[ir.Value]) -> Form:
        if len(dims) == 1:
            return Form(0, {dims[0]: 1})
        return Form(-self.shift, {dims[0]: self.by, dims[1]: 1})

    def _form(self, value: ir.Value, forms: dict[ir.Value, Form]) -> Form:
        if value in forms:
            return forms[value]
        number = self._constant(value)
        return Form(0, {value: 1}) if number is None else Form(number)

    def _follow(self, op: ir.Operation, forms: dict[ir.Value, Form], ranges: Ranges) -> ir.Value | None:
        """Add the form of an op's result to ``forms``, if it is linear. Return the operand that it equals."""
        if len(op.results) != 1 or not isinstance(op.results[0].type, ir.IntegerType | ir.IndexType):
            return None
        same, form = None, None
        operands = [self._form(v, forms) for v in op.operands]
        if op.name in ("arith.addi", "arith.subi"):
            form = operands[0] + operands[1] * (1 if op.name == "arith.addi" else -1)
        elif op.name == "arith.muli":
            factors = [n for n in operands if not n.terms]
            others = [n for n in operands if n.terms] or factors[1:]
            form = others[0] * factors[0].constant if factors else None
        elif op.name in _SAME and op.operands[0].type != ir.IntegerType.get_signless(1):
            form = operands[0]
        elif op.name in _DIVIDES and not operands[1].terms and operands[1].constant > 0:
            parts = operands[0].divided(operands[1].constant, ranges)
            form = parts and parts[0 if op.name in _QUOTIENTS else 1]
        elif op.name == "arith.select":
            condition = forms.get(op.operands[0])
            if condition is not None and not condition.terms:
                same = op.operands[1 if condition.constant else 2]
                form = self._form(same, forms)
        elif (known := signs(questions(op, operands, ranges), ranges)) is not None and known:
            if op.name == "arith.cmpi":
                form = Form(int(answer(op, known)))
            elif op.name == "math.absi":
                form = operands[0] * (-1 if known[0] else 1)
            else:
                same = op.operands[known[0] != (op.name == "arith.minsi")]
                form = self._form(same, forms)
        elif op.name in ("arith.ori", "arith.andi"):
            form = self._bit(op, forms)
        range_ = form.range(ranges) if form is not None else None
        if form is not None and range_ is not None and fits(range_, op.results[0].type):
            forms[op.results[0]] = form
            return same
        return None

    def _bit(self, op: ir.Operation, forms: dict[ir.Value, Form]) -> Form | None:
        """Return the result of a logical op on bools that its known operands decide."""
        if op.results[0].type != ir.IntegerType.get_signless(1):
            return None
        known = [forms[v] for v in op.operands if v in forms and not forms[v].terms]
        decisive = int(op.name == "arith.ori")
        if any(form.constant == decisive for form in known):
            return Form(decisive)
        return Form(1 - decisive) if len(known) == 2 else None

    def _write(self, sections: list[_Section]) -> None:
        carried = list(self.loop.operands)[3:]
        with ir.InsertionPoint(self.loop.operation):
            for section in sections:
                carried = self._loops(section, [], carried)
        for old, new in zip(self.loop.results, carried, strict=True):
            old.replace_all_uses_with(new)
        self.loop.operation.erase()

    def _loops(self, section: _Section, at: list[ir.Value], carried: list[ir.Value]) -> list[ir.Value]:
        """Write the loops of a section from dim ``len(at)`` on."""
        if len(at) == len(section.dims):
            return self._body(section, at, carried)
        first, last = section.dims[len(at)]
        if at and self.by <= WRITTEN_OUT:
            for rest in range(first, last + 1):
                alone = _Section((section.dims[0], (rest, rest)))
                carried = self._body(alone, [*at, _index(rest)], carried)
            return carried
        if first == last and (self.is_static or self.by):
            return self._loops(section, [*at, _index(first)], carried)
        bounds = [_index(first), _index(last + 1)]
        if not self.is_static:
            low, high = list(self.loop.operands)[:2]
            bounds = [arith.maxsi(low, bounds[0]), arith.minsi(high, bounds[1])]
        loop = scf.ForOp(bounds[0], bounds[1], _index(1), carried)
        if len(at) + 1 == len(section.dims) or self.by <= WRITTEN_OUT:
            if LOOP in self.loop.operation.attributes:
                loop.operation.attributes[LOOP] = self.loop.operation.attributes[LOOP]
            elif SHORTEST_INNER <= last + 1 - first < LONG_LOOP:
                loop.operation.attributes[LOOP] = ir.Attribute.parse(VECTORS)
        with ir.InsertionPoint(loop.body):
            scf.YieldOp(self._loops(section, [*at, loop.induction_variable], list(loop.inner_iter_args)))
        return list(loop.results)

    def _body(self, section: _Section, at: list[ir.Value], carried: list[ir.Value]) -> list[ir.Value]:
        """Copy the loop's body, with what is known in a section as constants."""
        symbols, ranges, forms = self._symbols(section)
        here = dict(zip(symbols, at, strict=True))
        made = dict(zip(self.loop.inner_iter_args, carried, strict=True))
        made[self.loop.induction_variable] = _built(self._index(symbols), here, ir.IndexType.get())
        for op in self.ops:
            same = self._follow(op, forms, ranges)
            operands = [made.get(v, v) for v in op.operands]
            if same is not None:
                made[op.results[0]] = made.get(same, same)
            elif op.results and (op.name == "math.absi" or op.name in _DIVIDES) and op.results[0] in forms:
                made[op.results[0]] = _built(forms[op.results[0]], here, op.results[0].type)
            elif op.results and op.results[0] in forms and not forms[op.results[0]].terms:
                number = ir.IntegerAttr.get(op.results[0].type, forms[op.results[0]].constant)
                made[op.results[0]] = arith.constant(op.results[0].type, number)
            else:
                copy = copied(op, operands)
                made.update(zip(op.results, copy.results, strict=True))
        return [made.get(v, v) for v in self.end.operands]


def _joined(sections: Sequence[_Section]) -> list[_Section]:
    """Join neighbours of fewer than :data:`SHORTEST` steps, in which comparisons then stay.

    Gradients of seven slices have 13 sections, all but one of them of one step. The sections stay if most
    steps are in short ones.
    """
    made = list[_Section]()
    steps = {section: section.dims[0][1] - section.dims[0][0] + 1 for section in sections}
    if 2 * sum(n for n in steps.values() if n >= SHORTEST) < sum(steps.values()):
        return list(sections)
    for before, section in zip([None, *sections], sections, strict=False):
        if before is not None and max(steps[before], steps[section]) < SHORTEST:
            made[-1] = _Section(((made[-1].dims[0][0], section.dims[0][1]),))
        else:
            made.append(section)
    return made


def _change(form: Form, symbol: ir.Value, ranges: Ranges) -> int | None:
    """Return the least value of ``symbol``, above its least, at which the form's sign is known to change."""
    factor = form.terms.get(symbol, 0)
    range_ = (form - Form(0, {symbol: factor})).range(ranges) if factor else None
    if range_ is None:
        return None
    least, most = range_
    if factor > 0:  # negative for all up to one number, for none from another one on
        found = ((-most - 1) // factor + 1, -(least // factor))
    else:
        found = (most // -factor + 1, least // -factor + 1)
    low, high = ranges[symbol]
    return min((at for at in found if low < at <= high), default=None)


def _built(form: Form, here: dict[ir.Value, ir.Value], type_: ir.Type) -> ir.Value:
    return Form(form.constant, {here.get(v, v): f for v, f in form.terms.items()}).build(type_)


def _index(number: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), number)
