"""Programs of fusible ops, drawn by hypothesis: data that says itself what it computes,
in its own dtypes and in f64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

Tensor = torch.Tensor

SIZES = (1, 2, 3, 7, 16, 17, 127, 129)
"""Of a dim; 0 is drawn now and then."""
MOST_ELEMENTS = 40_000
LAYOUTS = ("contiguous", "transposed", "offset", "strided", "expanded")
FLOATS = (torch.float32, torch.bfloat16, torch.float64, torch.float16)


def _layer_norm(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def _turned(x: Tensor) -> Tensor:
    return x.transpose(-1, -2) if x.dim() > 1 else x


def _doubled(x: Tensor) -> Tensor:
    return torch.cat([x, x * 0.5], -1) if x.dim() else x


def _half(x: Tensor) -> Tensor:
    return x[..., : (x.shape[-1] + 1) // 2] if x.dim() else x


def _flat(x: Tensor) -> Tensor:
    return x.flatten(0, 1) if x.dim() > 1 else x


def _rows(x: Tensor) -> Tensor:
    return x.unsqueeze(0).expand(3, *x.shape)


UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "abs_": lambda x: (x * x + 0.1).sqrt(),
    "exp": lambda x: x.tanh().exp(),
    "log": lambda x: (x * x + 0.5).log(),
    "rsqrt": lambda x: (x * x + 0.25).rsqrt(),
    "gelu": torch.nn.functional.gelu,
    "tanh_gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "scaled": lambda x: x * 1.25 - 0.5,
    "softmax": lambda x: x.softmax(-1),
    "softmax_first": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": _layer_norm,
    "turned": _turned,
    "doubled": _doubled,
    "half": _half,
    "flat": _flat,
    "rows": _rows,
    "contiguous": lambda x: x.clone(),
}
LEAST = {"softmax": 0, "softmax_first": 0, "log_softmax": 0, "layer_norm": 16, "doubled": 0, "half": 0}
"""The size of the last dim that an op needs; the layer norm of two numbers that are nearly one
has no digits.
"""
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda x, y: x / (y * y + 0.5),
    "mean": lambda x, y: torch.lerp(x, y.to(x.dtype), 0.5),
    "added": lambda x, y: torch.add(x, y, alpha=0.75),
    "hypot": lambda x, y: (x * x + y * y + 0.1).sqrt(),
}
REDUCE: dict[str, Callable[..., Tensor]] = {
    "sum": lambda x, dims, keep: x.sum(dims, keep),
    "average": lambda x, dims, keep: x.mean(dims, keep),
    "var": lambda x, dims, keep: x.var(dims, correction=0, keepdim=keep),
    "norm": lambda x, dims, keep: (x * x).sum(dims, keep).add(0.1).sqrt(),
}


@dataclass(frozen=True)
class Step:
    """An op, by name, of earlier values, by number; ``more`` are its other arguments."""

    op: str
    operands: tuple[int, ...]
    more: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Given:
    """An input: shape, dtype, how it lies in memory, and whether its gradient is asked for."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str
    differentiated: bool

    def make(self) -> Tensor:
        shape = self.shape
        if self.layout == "transposed" and len(shape) > 1:
            return torch.randn(*shape[:-2], shape[-1], shape[-2]).to(self.dtype).mT
        if self.layout == "offset":
            return torch.randn(3, *shape).to(self.dtype)[1]
        if self.layout == "strided" and shape:
            return torch.randn(*shape, 2).to(self.dtype)[..., 0]
        if self.layout == "expanded" and shape:
            return torch.randn(1, *shape[1:]).to(self.dtype).expand(shape)
        return torch.randn(shape).to(self.dtype)


@dataclass(frozen=True)
class Program:
    """Inputs, steps, and the numbers of the values that are results;
    gradients follow them, of a loss of all results.
    """

    given: tuple[Given, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]

    def __call__(self, *inputs: Tensor, wide: bool = False) -> list[Tensor]:
        """Results, then gradients. ``wide``: in f64 throughout, as are the inputs."""
        leaves = [
            i.detach().requires_grad_(g.differentiated) for i, g in zip(inputs, self.given, strict=True)
        ]
        with torch.enable_grad():
            values: list[Tensor] = list(leaves)
            for step in self.steps:
                values.append(self._step(step, [values[n] for n in step.operands], wide))
            results = [values[n] for n in self.results]
            roots = [r for r in results if r.requires_grad]
            asked = [leaf for leaf in leaves if leaf.requires_grad]
            found = (
                torch.autograd.grad(roots, asked, [torch.ones_like(r) for r in roots], allow_unused=True)
                if roots
                else []
            )
        return [r.detach() for r in results] + [g for g in found if g is not None]

    def _step(self, step: Step, operands: Sequence[Tensor], wide: bool) -> Tensor:
        if step.op in UNARY:
            return UNARY[step.op](*operands)
        if step.op in BINARY:
            return BINARY[step.op](*operands)
        if step.op in REDUCE:
            return REDUCE[step.op](*operands, *step.more)
        if step.op == "where":
            condition, x, y = operands  # an input's own signs, which are the same in f64
            return torch.where(condition > 0, x, y)
        if step.op == "matmul":
            return operands[0] @ operands[1].to(operands[0].dtype)
        assert step.op == "cast"
        return operands[0].to(torch.float64 if wide else step.more[0])


@st.composite
def programs(draw: Any) -> Program:
    """Up to four inputs and ten steps; shapes of up to three dims that broadcast with one another."""
    full = draw(
        st.lists(
            st.sampled_from(SIZES if draw(st.integers(0, 19)) else (*SIZES, 0)), min_size=1, max_size=3
        ).filter(_is_small)
    )
    dtypes = st.sampled_from(FLOATS[:1] if draw(st.booleans()) else FLOATS)
    given = tuple(
        Given(tuple(_part(draw, full)), draw(dtypes), draw(st.sampled_from(LAYOUTS)), draw(st.booleans()))
        for _ in range(draw(st.integers(1, 4)))
    )
    values = [torch.empty(g.shape, dtype=g.dtype, device="meta") for g in given]
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 10))):
        step = _drawn_step(draw, values, len(given), dtypes)
        made = Program((), (), ())._step(step, [values[n] for n in step.operands], False)
        if made.numel() <= MOST_ELEMENTS and made.dim() < 5:
            steps.append(step)
            values.append(made)
    last = len(values) - 1
    others = draw(st.lists(st.integers(len(given), last), max_size=2)) if steps else []
    return Program(given, tuple(steps), tuple(dict.fromkeys([last, *others])))


def _is_small(shape: Sequence[int]) -> bool:
    return torch.Size(shape).numel() <= MOST_ELEMENTS


def _part(draw: Any, full: Sequence[int]) -> list[int]:
    """A shape that broadcasts to ``full``."""
    shape = [1 if draw(st.integers(0, 4)) == 0 else n for n in full]
    return shape[draw(st.integers(0, len(shape))) if draw(st.integers(0, 4)) == 0 else 0 :]


def _drawn_step(draw: Any, values: Sequence[Tensor], inputs: int, dtypes: Any) -> Step:
    first = draw(st.integers(max(0, len(values) - 4), len(values) - 1))
    x = values[first]
    partners = [n for n, y in enumerate(values) if _broadcasts(x, y)]
    partner = draw(st.sampled_from(partners))
    kind = draw(st.sampled_from(("unary", "unary", "binary", "binary", "reduce", "where", "matmul", "cast")))
    if kind == "binary":
        return Step(draw(st.sampled_from(sorted(BINARY))), (first, partner))
    if kind == "reduce" and x.dim():
        dims = draw(st.sets(st.integers(0, x.dim() - 1), min_size=1))
        return Step(
            draw(st.sampled_from(sorted(REDUCE))), (first,), (tuple(sorted(dims)), draw(st.booleans()))
        )
    if kind == "where":
        masks = [
            n for n in range(inputs) if _broadcasts(values[n], x) and _broadcasts(values[n], values[partner])
        ]
        if masks and _broadcasts(
            torch.empty(torch.broadcast_shapes(x.shape, values[partner].shape), device="meta"),
            values[masks[0]],
        ):
            return Step("where", (masks[0], first, partner))
    if kind == "matmul":
        right = [n for n, y in enumerate(values) if x.dim() == y.dim() == 2 and x.shape[1] == y.shape[0]]
        if right:
            return Step("matmul", (first, draw(st.sampled_from(right))))
    if kind == "cast":
        return Step("cast", (first,), (draw(dtypes),))
    unfit = {op for op, size in LEAST.items() if x.dim() == 0 or x.shape[-1] < size}
    return Step(draw(st.sampled_from(sorted(set(UNARY) - unfit))), (first,))


def _broadcasts(x: Tensor, y: Tensor) -> bool:
    return all(1 in (a, b) or a == b for a, b in zip(reversed(x.shape), reversed(y.shape), strict=False))
