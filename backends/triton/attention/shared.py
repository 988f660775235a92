"""Shared text of the modules of ``kern.attention`` and its backward: constants, layouts, masks.

Scores are computed in powers of 2: ``exp(x) = 2 ** (x * log2(e))``. A block of scores is ``[queries, keys]``,
in f32. Head sizes of queries and values are padded to powers of 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from shardc.backends.triton.emit.text import VALUES, factor_text, precision_lines, precision_of
from shardc.dialects.kern.attention_maps import KEYS, ROLES, Attention
from shardc.dialects.kern.size import AnySize, Size, Symbol
from shardc.dialects.kern.types import ELEMENTS

FAR = 1 << 31
"""Number of elements from which on offsets need 64 bits."""

SIZES = {"b": "BATCH", "h": "HEADS", "m": "QUERIES", "n": "KEYS", "d": "SIZE", "e": "VALUE_SIZE"}
_MEANINGS = {"d": "  # of a query and a key", "e": "  # of a value"}


def padded(size: AnySize) -> int:
    """Return a head's size padded to a power of 2, at least 16, as ``tl.dot`` requires."""
    assert isinstance(size, int)
    return max(16, 1 << (size - 1).bit_length())


@dataclass(frozen=True)
class Writer:
    """Writer of text for one attention. ``symbols``: symbol -> the kernel's parameter for it."""

    name: str
    spec: Attention
    symbols: Mapping[Symbol, str] = field(default_factory=dict)
    tf32: bool = False
    ranges: bool = False
    """True if an earlier kernel computes the mask's ranges (``ranges.py``)."""

    def size(self, dim: str) -> AnySize:
        return self.spec.sizes[dim]

    def has(self, role: str) -> bool:
        return role in self.spec.tensors

    @cached_property
    def type(self) -> str:
        """Triton type of queries, keys and values."""
        return VALUES[self.element]

    @cached_property
    def element(self) -> str:
        return ELEMENTS[self.spec.tensors["q"].type.dtype]

    @cached_property
    def precision(self) -> str:
        """Precision argument of each ``tl.dot``."""
        return precision_of(self.element)

    @cached_property
    def mask(self) -> str:
        """Mask in a function's parameter list."""
        return "mask, " if self.has("mask") else ""

    @cached_property
    def parameters(self) -> str:
        """Symbols in a function's parameter list."""
        return "".join(f"{name}, " for name in self.symbols.values())

    @cached_property
    def more(self) -> str:
        """Symbols in a parameter list, at the end of a line."""
        return f" {self.parameters}".rstrip()

    @cached_property
    def loops_once(self) -> bool:
        """True if unmasked blocks share a loop with the others.

        Without matrix instructions, products cost more than masks, and a second loop would occupy registers.
        """
        return self.element == "f32" and not self.tf32

    def cast(self, value: str) -> str:
        """Cast an f32 value to the type of tensors in memory and of ``tl.dot``."""
        if self.element == "f32":
            return value
        return f"{value}.to({self.type})" if value.isidentifier() else f"({value}).to({self.type})"

    # Sizes

    def constants(self) -> list[str]:
        """Return the lines that define sizes and settings of the module."""
        spec = self.spec
        sizes = {dim: size for dim in "bhmnde" if not isinstance(size := self.size(dim), Size)}
        lines = [f"{SIZES[d]} = tl.constexpr({n}){_MEANINGS.get(d, '')}" for d, n in sizes.items()]
        lines += ["LOG2E = tl.constexpr(1.4426950408889634)"]
        lines += [f"SCALE = tl.constexpr({spec.scale!r})  # of scores"]
        if spec.group > 1:
            lines += [f"GROUP = tl.constexpr({spec.group})  # query heads that share a head of keys"]
        if spec.causal:
            lines += [f"OFFSET = tl.constexpr({spec.q_offset})  # query m sees the keys up to m + OFFSET"]
        return [*lines, *precision_lines(self.element, self.tf32)]

    def sizes(self) -> list[str]:
        """Return the lines that name a function's symbolic sizes."""
        return [f"{SIZES[d]} = {self.text(self.size(d))}" for d in "bmn" if isinstance(self.size(d), Size)]

    def text(self, size: AnySize) -> str:
        """Return a size as the text of a factor."""
        return factor_text(size, list(self.symbols.values()))

    # Places

    def head(self, role: str, head: str = "head") -> str:
        """Return the start of one head's rows, at ``batch`` and ``head`` (of queries) or ``kv_head``."""
        if self.spec.group > 1 and role in KEYS and head == "head":
            head = "head // GROUP"
        stride = self.spec.tensors[role].stride
        return self._sum(role, ((self._far("batch", role, "b"), stride("b")), (head, stride("h"))))

    def to_head(self, *roles: str) -> list[str]:
        """Return the lines that move pointers to a program's head."""
        return [f"{role} = {text}" for role in roles if self.has(role) and (text := self.head(role)) != role]

    def _far(self, index: str, role: str, dim: str) -> str:
        """Return an index along a dim, in 64 bits if offsets may need more than 31."""
        reach = self.spec.tensors[role].stride(dim) * self.size(dim)
        return f"{index}.to(tl.int64)" if isinstance(reach, Size) or reach >= FAR else index

    def delta(self) -> str:
        """Return the start of one query head's deltas."""
        return f"delta + ({self._far('batch', 'lse', 'b')} * HEADS + head) * QUERIES"

    def at(self, role: str, *, across: bool = False) -> str:
        """Return pointers to a block of rows: ``[row, column]``, or ``[column, row]`` if ``across``."""
        layout, (row, *column) = self.spec.tensors[role], ROLES[role][2:]
        if not column:
            return self._sum(role, ((self._far(row, role, row), layout.stride(row)),))
        names = [f"{d}[None, :]" if (d == row) == across else f"{d}[:, None]" for d in (row, *column)]
        names[0] = self._far(names[0], role, row)
        return self._sum(role, zip(names, (layout.stride(d) for d in (row, *column)), strict=True))

    def _sum(self, start: str, terms: Iterable[tuple[str, AnySize]]) -> str:
        parts = [start]
        for index, stride in terms:
            if stride != 0:
                factor = f"({index})" if "//" in index else index
                parts.append(index if stride == 1 else f"{factor} * {self.text(stride)}")
        return " + ".join(parts)

    # Loads

    def load(self, role: str, rows: bool, *, across: bool = False) -> str:
        """Load a block of rows, with 0 for columns beyond the end, and for rows beyond it if ``rows``."""
        return f"tl.load({self.at(role, across=across)}{_where(self._inside(role, rows, across))})"

    def store(self, role: str, value: str) -> str:
        return f"tl.store({self.at(role)}, {value}, mask={joined(self._inside(role, True))})"

    def _inside(self, role: str, rows: bool, across: bool = False) -> list[str]:
        """Return the conditions that columns, and rows if ``rows``, are within bounds."""
        row, column = ROLES[role][2:]
        down, right = ("[None, :]", "[:, None]") if across else ("[:, None]", "[None, :]")
        is_padded = self.size(column) != padded(self.size(column))
        return [f"{row}{down} < {SIZES[row]}"] * rows + [f"{column}{right} < {SIZES[column]}"] * is_padded

    def load_row(self, pointer: str) -> str:
        return f"tl.load({pointer}, mask=m < QUERIES, other=0.0)"

    def masked(self, keys_end: bool, m: str = "m[:, None]", n: str = "n[None, :]") -> list[str]:
        """Return the lines that apply the mask to ``score``. ``keys_end``: keys may be beyond the end."""
        if not self.has("mask"):
            return []
        layout = self.spec.tensors["mask"]
        tests = [f"{m} < QUERIES"] * ("m" in layout.order)
        tests += [f"{n} < KEYS"] * ("n" in layout.order and keys_end)
        at = self.mask_at(m, n)
        if layout.type.dtype == torch.bool:
            return [
                f"seen = tl.load({at}{_where(tests, 'False')})",
                'score = tl.where(seen, score, float("-inf"))',
            ]
        return [f"score += tl.load({at}{_where(tests)}).to(tl.float32) * LOG2E"]

    def mask_at(self, m: str, n: str) -> str:
        """Return pointers to a head's mask at queries ``m`` and keys ``n``."""
        layout = self.spec.tensors["mask"]
        return self._sum("mask", ((self._far(m, "mask", "m"), layout.stride("m")), (n, layout.stride("n"))))

    @cached_property
    def hides_rows(self) -> bool:
        """True if a row may see nothing at all."""
        return self.has("mask") or (self.spec.causal and self.spec.q_offset < 0) or self.size("n") == 0


def _where(tests: Sequence[str], other: str = "0.0") -> str:
    return f", mask={joined(tests)}, other={other}" if tests else ""


def joined(tests: Sequence[str]) -> str:
    """Return the conjunction of tests."""
    return tests[0] if len(tests) == 1 else " & ".join(f"({t})" for t in tests)


def indented(lines: Sequence[str]) -> str:
    """Indent lines for a function's body."""
    return "\n".join(f"    {line}" for line in lines)
