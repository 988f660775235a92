"""Reductions as Triton text: of two values, and of all values of a tile along a dim."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardc.backends.body.combiner import Combiner
from shardc.backends.body.graph import Value
from shardc.backends.body.roots import Root
from shardc.backends.triton.emit.text import Expr, attribute

_CALLS = {
    "arith.maximumf": ("maximum", "tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)"),
    "arith.minimumf": ("minimum", "tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)"),
    "arith.maxnumf": ("larger", "tl.maximum(a, b)"),
    "arith.minnumf": ("smaller", "tl.minimum(a, b)"),
    "arith.maxsi": ("larger", "tl.maximum(a, b)"),
    "arith.minsi": ("smaller", "tl.minimum(a, b)"),
    "arith.mulf": ("product", "a * b"),
    "arith.muli": ("product", "a * b"),
    "arith.ori": ("any_of", "a | b"),
    "arith.andi": ("all_of", "a & b"),
    "arith.xori": ("parity", "a ^ b"),
}
_ADDS = ("arith.addf", "arith.addi")
_NAMES = {"addf": "sum", "addi": "sum", "mulf": "product", "muli": "product"} | {
    op: op[:3] for op in ("maximumf", "minimumf", "maxsi", "minsi")
}


@dataclass(eq=False)
class Joins:
    """Reductions of one module. ``used``: functions of two values that it must define."""

    used: dict[str, str] = field(default_factory=dict)

    def two(self, combiner: Combiner, a: str, b: str) -> str:
        return f"{a} + {b}" if combiner.op in _ADDS else f"{self._function(combiner)}({a}, {b})"

    def along(self, combiner: Combiner, value: str, dim: int, keep: bool = True) -> str:
        """Reduce ``value`` along a dim, which is kept with size 1 if ``keep``."""
        kept = ", keep_dims=True" if keep else ""
        if combiner.op in _ADDS:
            return f"tl.sum({value}, {dim}{kept})"
        return f"tl.reduce({value}, {dim}, {self._function(combiner)}{kept})"

    def from_start(self, combiner: Combiner, start: Expr, value: str) -> str:
        """Combine ``value`` with the initial value, unless that is the neutral element."""
        is_identity = start.literal is not None and start.literal == attribute(combiner.identity).literal
        return value if is_identity else self.two(combiner, str(start), value)

    def _function(self, combiner: Combiner) -> str:
        name, text = _CALLS[combiner.op]
        self.used[f"_{name}"] = text
        return f"_{name}"

    def text(self) -> str:
        """Return the functions' definitions."""
        return "\n\n".join(
            f"@triton.jit\ndef {name}(a, b):\n    return {text}\n" for name, text in self.used.items()
        )


def combiner_of(root: Root, n: int) -> Combiner:
    """Return the combiner of a reduction's result."""
    assert root.combiners is not None
    return root.combiners[n]


def init_of(root: Root, n: int) -> Value:
    """Return the initial value of a reduction's result."""
    assert root.generic is not None
    return root.generic.inits[n]


def result_name(combiner: Combiner) -> str:
    """Return the name for a reduction's result."""
    return _NAMES.get(combiner.op.removeprefix("arith."), "joined")
