"""Random programs as text, of many more ops than fusion takes: what ``torch.compile`` makes of them is held against
eager.

A program is lines such as ``v3 = torch.where(v1, v2, v0)`` over drawn inputs, each of which ran once when it was drawn.
A failing one is a test as it stands, once :func:`reduced` has taken from it what does not matter.
"""

from __future__ import annotations

import linecache
import random
import string
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

Tensor = torch.Tensor

SIZES = (1, 1, 2, 3, 5, 7, 8, 16, 17, 33, 127, 129)
MOST_ELEMENTS = 20_000
LAYOUTS = ("contiguous", "contiguous", "transposed", "offset", "strided", "expanded")
DTYPES = ("f32", "f32", "f32", "bf16", "f16", "f64", "i64", "i32", "u8", "b8")
NAMES = {
    "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64,
    "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "b8": torch.bool,
}  # fmt: skip
WIDE = {name: torch.float64 if dtype.is_floating_point else dtype for name, dtype in NAMES.items()}

LINES = {
    "pointwise": """
        {x}.neg()
        {x}.tanh()
        {x}.sigmoid()
        {x}.sin() * {x}.cos()
        ({x} * {x} + 0.1).sqrt()
        {x}.tanh().exp()
        ({x} * {x} + 0.5).log()
        ({x} * {x} + 0.25).rsqrt()
        {x}.square().add(0.5).reciprocal()
        {x}.erf()
        {x}.tanh().expm1()
        {x}.abs().log1p()
        {x}.atan()
        {x} ** 2
        {x} ** 3
        {x}.abs().add(0.25) ** 0.5
        ({x}.square() + 0.5) ** {c}
        F.gelu({x})
        F.gelu({x}, approximate="tanh")
        F.silu({x})
        F.mish({x})
        F.softplus({x})
        F.elu({x})
        F.selu({x})
        F.logsigmoid({x})
        F.hardswish({x})
        F.hardsigmoid({x})
        F.leaky_relu({x}, 0.1)
        F.relu6({x})
        F.softsign({x})
        F.tanhshrink({x})
        {x} * 1.25 - 0.5
        {c} - {x}
        {c} / ({x}.square() + 0.5)
        {x} + 2
        {x} + {y}
        {x} - {y}
        {x} * {y}
        {x} / ({y}.square() + 0.5)
        {y} - {x}
        torch.lerp({x}, {y}.to({x}.dtype), {c})
        torch.add({x}, {y}, alpha=0.75)
        torch.sub({x}, {y}, alpha=2)
        torch.hypot({x}, {y}.to({x}.dtype) + 2)
        torch.atan2({x}, {y}.to({x}.dtype).square() + 0.5)
        torch.logaddexp({x}, {y}.to({x}.dtype))
        torch.addcmul({x}, {y}.to({x}.dtype), {x}, value=0.5)
        torch.addcdiv({x}, {x}, {y}.to({x}.dtype).square() + 1, value=0.5)
        torch.where({m}, {x}, {y})
        torch.where({m}, {x}, {c})
        torch.where({m}, {c}, {x})
        {x}.masked_fill({m}, {c})
        {x}.masked_fill({m}, float("-inf")).exp()
        {x} * {m}
        {x} + {n}
        {x} * {n}.to({x}.dtype)
        torch.tensor(1.5) * {x}
        torch.tensor(0.75, dtype=f64) + {x}
        {x} * torch.tensor(3)
        {x}.to({t})
        {x}.to({t}).exp().clamp(max=10)
        {x}.clone()
        {x}.contiguous()
        {x}.detach() * {x}
        F.dropout({x}, 0.0)
        torch.zeros_like({x}) + {y}
        torch.full_like({x}, {c}) * {x}
        torch.ones({v}.shape, dtype={t})
        torch.arange({v}.numel()).reshape({v}.shape).to({t}) * 0.01
        torch.linspace(0, 1, {v}.numel()).reshape({v}.shape)
    """,
    "exact": """
        {e}.relu()
        {e}.abs()
        {e}.sign()
        {e}.clamp(-0.5, 1)
        {e}.clamp(min=0)
        {e}.round()
        {e}.floor()
        {e}.ceil()
        {e}.trunc()
        {e}.nan_to_num()
        torch.maximum({e}, {f})
        torch.minimum({e}, {f})
        torch.fmax({e}, {f})
        {e} > {f}
        {e} <= {f}
        {e} == {f}
        {e} != {c}
        {e} > 0
        {e}.isnan()
        {e}.isinf()
        {e}.isfinite()
        {e}.logical_not()
        torch.logical_and({e} > 0, {f})
        ({e} > 0) ^ ({f} > 0)
        ~({e} > 0)
        {e}.bool()
        {e}.nan_to_num(0, 9, -9).clamp(-9, 9).long()
        {e}.nan_to_num(0, 9, -9).clamp(-9, 9).int()
        {e}.nan_to_num(0, 9, -9).clamp(0, 9).to(u8)
        {e}.argmax({d}, keepdim={k})
        {e}.argmin({d})
        {e}.argmax()
        {e}.amax({ds}, keepdim={k})
        {e}.amin({ds}, keepdim={k})
        {e}.max({d}).values
        {e}.max({d}).indices
        {e}.min({d}, keepdim=True)[0]
        {e}.max()
        {e}.min()
        ({e} > 0).any({d}, keepdim={k})
        ({e} > 0).all({d})
        ({e} > 0).sum({ds})
        ({e} > 0).sum({ds}, keepdim={k})
        {e}.count_nonzero()
        {e}.sort({d}).values
        {e}.topk(1, {d}).values
        torch.heaviside({e}, {e})
        torch.copysign({e}, {f})
        {e}.signbit()
        {e}.masked_fill({e} > 0, {c})
        F.max_pool1d({e}, 2, padding=1)
        F.threshold({e}, 0.1, 0.2)
        F.hardtanh({e})
        F.hardshrink({e})
    """,
    "integers": """
        {i} + {i}
        {i} * 2 + 1
        {i} - {n}
        {i} // 3
        {i} % 3
        torch.remainder({i}, 5)
        torch.fmod({i}, 5)
        {i} & 3
        {i} | 1
        {i} ^ {i}
        {i} << 1
        {i} >> 1
        {i}.sum({d})
        {i}.cumsum({d})
        {i}.float().mean({d})
        {i} / 2
        {i} * 0.5
        {i}.prod({d})
        -{i}
        {i}.abs()
        {i}.clamp(0, 3)
        F.one_hot({i}.long() % 5, 5)
        torch.arange(7)[{i}.long().contiguous() % 7]
        {i}.bool()
        {i}.to({t}).tanh()
        {i}.amax({d})
        {i}.sum().to({t})
        torch.div({i}, 2, rounding_mode="floor")
        torch.div({i}, -2, rounding_mode="trunc")
    """,
    "reduction": """
        {x}.sum()
        {x}.mean()
        {x}.sum({ds}, keepdim={k})
        {x}.mean({ds}, keepdim={k})
        {x}.var({ds}, correction=0, keepdim={k})
        {x}.std({ds}, correction=0).add(0.1)
        {x}.var({d}, correction=1)
        {x}.square().sum({ds}, keepdim={k}).add(0.1).sqrt()
        {x}.sum({d}, dtype=f32)
        {x}.logsumexp({ds})
        {x}.logsumexp({d}, keepdim=True)
        {x}.sub({x}.mean({d}, keepdim=True))
        {x}.add(1).norm(2, {d})
        {x}.tanh().add(1.5).prod({d})
        torch.linalg.vector_norm({x}.square() + 0.1, 2, {ds}, keepdim={k})
        torch.var_mean({x}, {ds}, correction=0, keepdim={k})[0]
        torch.var_mean({x}, {d}, correction=0)[1]
        {x}.cumsum({d})
        {x}.mean({ds}).sum()
        F.mse_loss({x}, {y}.to({x}.dtype).expand_as({x}))
        F.mse_loss({x}, {y}.to({x}.dtype).expand_as({x}), reduction="none")
        F.smooth_l1_loss({x}, {y}.to({x}.dtype).expand_as({x}))
        F.binary_cross_entropy_with_logits({x}, {y}.to({x}.dtype).expand_as({x}).sigmoid())
        F.kl_div({x}.log_softmax({d}), {y}.to({x}.dtype).expand_as({x}).softmax({d}), reduction="sum")
        F.cross_entropy({x}.flatten(0, -2), {r})
        F.cross_entropy({x}.flatten(0, -2), {r}, reduction="sum", label_smoothing=0.1)
        F.cross_entropy({x}.flatten(0, -2), {r}, ignore_index=0, reduction="none")
        F.cosine_similarity({x} + 1, {y}.to({x}.dtype) + 2, {d})
    """,
    "normalization": """
        {x}.softmax({d})
        {x}.softmax({d}, dtype=f32)
        {x}.log_softmax({d})
        {x}.masked_fill({m}, -1e4).softmax({d})
        F.softmin({x}, {d})
        F.layer_norm({x}, {x}.shape[-1:], eps=0.1)
        F.layer_norm({x}, {x}.shape[-2:], eps=0.1)
        F.layer_norm({x}, {x}.shape[-1:], {l}, {l}, eps=0.1)
        F.rms_norm({x}, {x}.shape[-1:], eps=0.1)
        F.rms_norm({x}, {x}.shape[-1:], {l}, eps=0.1)
        F.group_norm({x}, 1, eps=0.1)
        F.group_norm({x}, {x}.shape[1], eps=0.1)
        F.instance_norm({x}, eps=0.1)
        F.batch_norm({x}, None, None, training=True, eps=0.1)
        F.normalize({x}, dim={d}, eps=0.1)
        F.normalize({x}, p=1.0, dim={d}, eps=0.1)
        F.glu({x}, {d})
        {x} * ({x}.square().mean(-1, keepdim=True) + 0.1).rsqrt()
    """,
    "view": """
        {v}.transpose({d}, -1)
        {v}.mT
        {v}.permute({perm})
        {v}.flatten()
        {v}.flatten(0, 1)
        {v}.reshape(-1, {v}.shape[-1])
        {v}.unsqueeze({d})
        {v}.unsqueeze(-1)
        {v}.squeeze({d})
        {v}.squeeze()
        {v}.unsqueeze(0).expand(3, *{v}.shape)
        {v}.expand(2, *{v}.shape)
        {v}.select({d}, {j})
        {v}.select({d}, -1)
        {v}.narrow({d}, {j}, 1)
        {v}[{slice}]
        {v}[..., {j0}:]
        {v}[..., ::2]
        {v}[1:]
        {v}[:-1]
        {v}[..., None, :]
        {v}.chunk(2, {d})[0]
        {v}.chunk(2, {d})[-1]
        {v}.split(3, {d})[-1]
        torch.cat(tuple(reversed({v}.chunk(3, {d}))), {d})
        {v}.unbind({d})[0]
        {v}.unflatten(-1, (-1, 1))
        {v}.diagonal()
        {v}.movedim({d}, 0)
        {v}.view({v}.shape)
        {v}.detach()
        {v}.t()
        {v}.expand_as({v})
        {v}.unfold({d}, 2, 1)
        {v}.swapaxes(0, -1)[..., :2]
    """,
    "copy": """
        {v}.flip({d})
        {v}.flip({ds})
        {v}.roll(1, {d})
        {v}.roll(-2)
        {v}.repeat(2, *[1] * ({v}.dim() - 1))
        {v}.repeat_interleave(2, {d})
        {v}.tile(2)
        torch.cat([{v}, {v}], {d})
        torch.cat([{x}, {x} * 0.5], {d})
        torch.cat([{x}, {y}.to({x}.dtype).expand_as({x})], {d})
        torch.cat([{x}.narrow({d}, 0, 1), {x}.tanh()], {d})
        torch.stack([{x}, {x}.sigmoid()], {d})
        torch.stack([{v}, {v}.clone()], -1)
        F.pad({x}, (1, 2))
        F.pad({x}, (0, 1, 1, 0), value=0.5)
        F.pad({x}, (-1, 1))
        F.pad({x}, (1, 1), mode="reflect")
        F.pad({x}, (1, 1), mode="replicate")
        {v}.tril()
        {v}.triu(1)
        {v}.t().contiguous()
        {v}.flip({d}).transpose(0, -1)
        torch.meshgrid({v}.flatten()[:4], {v}.flatten()[:3], indexing="ij")[0]
        torch.broadcast_tensors({x}, {y})[0]
        torch.diag_embed({x}.select({d}, 0))
    """,
    "indexing": """
        {v}.index_select({d}, {g})
        {v}[{g}]
        {v}[{g0}]
        {v}[:, {g1}]
        {v}[..., [0, 0]]
        F.embedding({g0}, {x}.flatten(1))
        F.embedding({g0}[:3].reshape(-1, 1), {x}.flatten(1), padding_idx=0)
        {x}.gather({d}, {gs})
        {v}.take_along_dim({gs}, {d})
        {x}.scatter({d}, {gs}[:1], 0.5)
        {x}.scatter_add({d}, {gs}, {x}.tanh())
        torch.zeros_like({x}).index_add({d}, {g}, {x}.index_select({d}, {g}))
        {x}.index_fill({d}, {g}, 0.5)
        {x}.index_copy({d}, torch.arange({x}.shape[{d}]), {x} * 2)
        {x}.index_put(({g0},), {x}[{g0}].tanh(), accumulate=True)
        {x}.select_scatter({x}.select({d}, 0) * 2, {d}, {j})
        {x}.slice_scatter({x}[:1] * 2, 0, 0, 1)
        torch.take({x}, {g0})
        {v}[{v}.shape[0] - 1]
        {x}.flatten().masked_fill(torch.arange({x}.numel()) % 3 == 0, 0.25)
    """,
    "matmul": """
        {x} @ {x}.mT
        {x}.mT @ {x} * 0.1
        {x} @ {w}
        F.linear({x}, {w}.mT)
        F.gelu(F.linear({x}, {w}.mT, {w}.sum(0)))
        F.linear({x}, {w}.mT) + {x}[..., :1]
        torch.addmm({x}[..., :1], {x}, {w})
        torch.addmm({x}[..., :1], {x}, {w}, beta=0.5, alpha=2)
        torch.baddbmm({x}[..., :1], {x}, {x}.mT @ {x}, alpha=0.1)
        torch.einsum("...ij,...kj->...ik", {x}, {x})
        torch.einsum("...ij,jk->...k", {x}, {w})
        torch.relu({x} @ {w}).square().sum(-1)
        ({x} @ {w}).softmax(-1)
        F.layer_norm({x}, {x}.shape[-1:], eps=0.1) @ {w}
        {x} @ {x}.select(-2, 0).unsqueeze(-1)
        torch.mv({x}, {x}[0])
        torch.outer({x}.flatten()[:5], {x}.flatten()[:4])
        torch.dot({x}.flatten(), {x}.flatten())
        F.scaled_dot_product_attention({q}, {q}.tanh(), {q})
        F.scaled_dot_product_attention({q}, {q}, {q} * 0.5, is_causal=True)
        F.conv1d({x3}, {x3}[:2, :, :1])
        F.conv1d({x3}, {x3}[:2, :, :3], padding=1, bias={x3}[:2, 0, 0])
        F.avg_pool1d({x}, 2)
        F.adaptive_avg_pool1d({x}, 2)
        F.interpolate({x3}, scale_factor=2)
    """,
    "in place": """
        {o}.mul_(0.5)
        {o}.add_({y}.to({o}.dtype).expand_as({o}))
        {o}.sin_()
        {o}.relu_()
        {o}.zero_()
        {o}.fill_({c})
        {o}.copy_({y}.expand_as({o}))
        {o}[..., 0] = 0.5
        {o}[0] = {o}[-1]
        {o}[1:] *= 2
        {o}[..., ::2] += 1
        {o}.select({d}, 0).mul_(3)
        {o}.mT.mul_(1.5)
        {o}.flatten()[:2].zero_()
        {o}.masked_fill_({m}, 0.25)
        {o}.transpose({d}, -1).add_(1)
        {o}.view(-1)[:3].exp_()
        {o}[{g0}] = 1.0
        {o}.clamp_(-1, 1)
        {o} += 1
        {o} -= {o}.mean()
        {o}.t_()
        {o}.squeeze_({d})
        {o}.diagonal().fill_(0.5)
        {o}.index_add_({d}, {g}, {o}.index_select({d}, {g}).detach())
    """,
}
"""What lines are drawn from. ``{x}`` is a value of floats, ``{i}`` of integers, ``{v}`` any, ``{e}`` one that rounding
has not touched, ``{o}`` one that may be written to; ``{y}`` ``{f}`` ``{n}`` ``{m}`` are floats, exact ones, integers
and booleans that broadcast with it. The rest are numbers, dims and indices that fit it."""
EXACT = ("view", "copy", "exact", "integers", "indexing")
"""Kinds of lines whose result is exact where all operands are."""
REFUSED = (RuntimeError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError)
"""What PyTorch raises for a line that does not fit its values."""
WEIGHTS = {
    "pointwise": 9, "exact": 3, "integers": 2, "reduction": 4, "normalization": 2, "view": 5, "copy": 2,
    "indexing": 2, "matmul": 2, "in place": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Given:
    """An input: shape, dtype by name, layout, whether its gradient is asked for, whether it has infinities and NaN.

    ``of`` is the number of an earlier input of which this one is a part of the memory.
    """

    shape: tuple[int, ...]
    dtype: str
    layout: str
    differentiated: bool = False
    special: bool = False

    def make(self, seed: int) -> Tensor:
        """The same numbers for the same seed."""
        g = torch.Generator().manual_seed(seed)
        shape, layout = self.shape, self.layout
        if layout == "transposed" and len(shape) > 1:
            return self._drawn((*shape[:-2], shape[-1], shape[-2]), g).mT
        if layout == "offset":
            return self._drawn((3, *shape), g)[1]
        if layout == "strided" and shape:
            return self._drawn((*shape, 2), g)[..., 0]
        if layout == "expanded" and shape:
            return self._drawn((1, *shape[1:]), g).expand(shape)
        return self._drawn(shape, g)

    def _drawn(self, shape: tuple[int, ...], g: torch.Generator) -> Tensor:
        dtype = NAMES[self.dtype]
        if not dtype.is_floating_point:
            return torch.randint(0, 2 if dtype is torch.bool else 9, shape, generator=g).to(dtype)
        x = torch.randn(shape, generator=g)
        if self.special and x.numel():
            at = torch.randint(0, x.numel(), (3,), generator=g)
            x.view(-1)[at] = torch.tensor([float("inf"), float("-inf"), float("nan")])
        return x.to(dtype)


@dataclass(frozen=True)
class Program:
    """Inputs, lines, and the names that are returned; ``dtypes`` are those of all values."""

    seed: int
    given: tuple[Given, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...] = ()

    def text(self) -> str:
        names = ", ".join(f"v{n}" for n in range(len(self.given)))
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def program({names}):\n{body}    return {', '.join(self.results)},\n"

    def function(self, wide: bool = False) -> Callable[..., tuple[Tensor, ...]]:
        """The program, with every float in f64 if ``wide``, as then its inputs have to be."""
        names = _names(wide)
        file = f"<program {self.seed}{' in f64' if wide else ''}>"
        linecache.cache[file] = (len(self.text()), None, self.text().splitlines(True), file)
        exec(compile(self.text(), file, "exec"), names)
        return names["program"]

    def inputs(self, other: bool = False) -> list[Tensor]:
        """``other``: of other sizes."""
        given = [replace(g, shape=tuple(n + 2 if n > 2 else n for n in g.shape)) if other else g for g in self.given]
        return [g.make(self.seed + n) for n, g in enumerate(given)]

    def __str__(self) -> str:
        return "\n".join([*(f"v{n}: {g}" for n, g in enumerate(self.given)), self.text()])


def _names(wide: bool) -> dict[str, Any]:
    return {"torch": torch, "F": torch.nn.functional, **(WIDE if wide else NAMES)}


def draw(seed: int) -> Program:
    """The program of a number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _Draw(seed).program()


class _Draw:
    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.names = _names(False)
        self.values: dict[str, Tensor] = {}
        self.exact: set[str] = set()
        self.lines: list[str] = []

    def program(self) -> Program:
        r = self.random
        full = [r.choice(SIZES) for _ in range(r.choice((1, 2, 2, 3, 3, 4)))]
        if r.random() < 0.05:
            full[r.randrange(len(full))] = 0
        while torch.Size(full).numel() > MOST_ELEMENTS:
            full[full.index(max(full))] = r.choice((2, 7))
        floats = DTYPES[:1] if r.random() < 0.5 else DTYPES[:6]
        special = r.random() < 0.1
        given = []
        for n in range(r.randint(1, 4)):
            dtype = r.choice(floats if n == 0 or r.random() < 0.7 else DTYPES)
            is_float = NAMES[dtype].is_floating_point
            given.append(
                Given(self._part(full), dtype, r.choice(LAYOUTS), is_float and r.random() < 0.5, special and is_float)
            )
        self.given = tuple(given)
        self.values = self._made()
        self.exact = set(self.values)
        wanted = r.choice((r.randint(1, 10), r.randint(8, 24)))
        with torch.enable_grad():
            for _ in range(8 * wanted):
                if len(self.lines) < wanted:
                    self._try_line()
        made = list(self.values)
        results = list(dict.fromkeys([made[-1], *(r.choice(made) for _ in range(r.randint(0, 2)))]))
        dtypes = tuple(sorted({v.dtype for v in self.values.values()}, key=str))
        return Program(self.seed, self.given, tuple(self.lines), tuple(results), dtypes)

    def _made(self) -> dict[str, Tensor]:
        return {f"v{n}": g.make(self.seed + n).requires_grad_(g.differentiated) for n, g in enumerate(self.given)}

    def _part(self, full: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to ``full``."""
        r = self.random
        shape = tuple(1 if r.random() < 0.2 else n for n in full)
        return shape[r.randint(0, len(shape)) :] if r.random() < 0.2 else shape

    def _try_line(self) -> None:
        kind = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        template = self.random.choice(_OPS[kind])
        try:
            fields = _Fields(self, template)
            text = template.format_map(fields)
        except LookupError:
            return  # nothing fits
        name = f"v{len(self.values)}"
        if kind == "in place":
            self._in_place(text, fields, name)
            return
        try:
            made = eval(text, {**self.names, **self.values})
        except REFUSED:
            return
        if not isinstance(made, Tensor) or made.numel() > MOST_ELEMENTS or made.dim() > 5 or made.is_complex():
            return
        self._add(name, text, made)
        if (kind in EXACT or ".where" in text) and fields.used <= self.exact and "exp(" not in text:
            self.exact.add(name)

    def _add(self, name: str, text: str, made: Tensor) -> None:
        self.lines.append(f"{name} = {text}")
        self.values[name] = made

    def _in_place(self, text: str, fields: _Fields, name: str) -> None:
        """On a copy, most of the time; it stays the copy's name. What is written to is not exact from then on."""
        target = fields.first
        values = {n: v.detach().clone() if v.is_leaf else v.clone() for n, v in self.values.items()}
        fresh = self.random.random() < 0.6
        if fresh:
            text = text.replace(target, name)
            values[name] = values[target].clone()
        trial = {**self.names, **values}
        try:
            exec(text, trial)
        except REFUSED:
            return
        if fresh:
            self._add(name, f"{target}.clone()", self.values[target].clone())
        backup = list(self.lines)
        self.lines.append(text)
        try:
            self._again()
        except REFUSED:
            self.lines = backup
            self._again()
        self.exact = set()

    def _again(self) -> None:
        """All values anew, for a write may have changed many of them."""
        trial = {**self.names, **self._made()}
        for line in self.lines:
            exec(line, trial)
        self.values = {n: trial[n] for n in self.values}


class _Fields(dict[str, str]):
    """Fills one line's fields, each when it is met; the first value decides what fits.
    Raises LookupError if nothing does.
    """

    def __init__(self, draw: _Draw, template: str) -> None:
        super().__init__()
        self.draw, self.random, self.used = draw, draw.random, set[str]()
        kinds = [field for _, field, _, _ in string.Formatter().parse(template) if field in FIRST]
        self.first = self._value(FIRST[kinds[0]])

    def __missing__(self, key: str) -> str:
        made = self._made(key)
        if key not in "c":
            self[key] = made
        return made

    def _made(self, key: str) -> str:
        if key in FIRST and key not in ("q", "x3"):
            return self.first
        if key in PARTNERS:
            return self._value(PARTNERS[key], partner=True)
        x, r = self.draw.values[self.first], self.random
        d = self.get("d", "0")

        def size(d: int) -> int:
            count = x.shape[d] if x.dim() else 1
            if not count:
                raise LookupError
            return count

        match key:
            case "d":
                return str(r.randrange(-x.dim(), x.dim()) if x.dim() else 0)
            case "ds":
                return str(tuple(sorted(r.sample(range(x.dim()), r.randint(1, x.dim()))))) if x.dim() else "()"
            case "perm":
                return str(tuple(r.sample(range(x.dim()), x.dim())))
            case "c":
                return r.choice(("0.5", "2", "-1.5", "0", "1", "0.1"))
            case "k":
                return r.choice(("True", "False"))
            case "t":
                return r.choice(("f32", "bf16", "f16", "f64"))
            case "j":
                return str(r.randrange(size(int(d))))
            case "j0":
                return str(r.randrange(size(-1)))
            case "slice":
                return ", ".join(r.choice((":", "1:", ":-1", "::2", "0:3", "-2:")) for _ in range(max(x.dim(), 1)))
            case "l":
                return f"{self.first}.flatten(0, -2)[0]"
            case "w":
                return f"{self.first}.reshape(-1, {self.first}.shape[-1])[:9].mT"
            case "q":
                return f"{self.first}.reshape(1, 1, -1, {self.first}.shape[-1])"
            case "x3":
                return f"{self.first}.reshape(1, -1, {self.first}.shape[-1])"
            case "r":
                return f"({self._value(_is_int)}.flatten().long()[:1].expand({x.numel() // size(-1)}) % {size(-1)})"
            case "g":
                return f"({self._value(_is_int)}.flatten().long()[:5] % {size(int(d))})"
            case "g0":
                return f"({self._value(_is_int)}.flatten().long()[:5] % {size(0)})"
            case "g1":
                return f"({self._value(_is_int)}.flatten().long()[:5] % {size(1)})"
            case "gs":
                return f"(torch.arange({x.numel()}).reshape({tuple(x.shape)}) * 7 % {size(int(d))})"
        raise AssertionError(key)

    def _value(self, fits: Callable[[_Draw, str], bool], partner: bool = False) -> str:
        draw = self.draw
        names = [n for n in draw.values if fits(draw, n)]
        if partner:
            names = [n for n in names if _broadcasts(draw.values[n], draw.values[self.first])]
        if not names:
            raise LookupError
        name = self.random.choice(names[-4:] if self.random.random() < 0.7 else names)
        self.used.add(name)
        return name


def _is_float(draw: _Draw, name: str) -> bool:
    return draw.values[name].is_floating_point()


def _is_int(draw: _Draw, name: str) -> bool:
    dtype = draw.values[name].dtype
    return not dtype.is_floating_point and dtype is not torch.bool


def _is_bool(draw: _Draw, name: str) -> bool:
    return draw.values[name].dtype is torch.bool


def _is_exact(draw: _Draw, name: str) -> bool:
    return name in draw.exact


def _is_any(draw: _Draw, name: str) -> bool:
    return True


FIRST = {"x": _is_float, "i": _is_int, "v": _is_any, "e": _is_exact, "o": _is_float, "q": _is_float, "x3": _is_float}
PARTNERS = {"y": _is_float, "n": _is_int, "m": _is_bool, "f": _is_exact}
_OPS = {kind: [line.strip() for line in text.strip().splitlines()] for kind, text in LINES.items()}


def _broadcasts(x: Tensor, y: Tensor) -> bool:
    return all(1 in (a, b) or a == b for a, b in zip(reversed(x.shape), reversed(y.shape), strict=False))


def reduced(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A program that fails as well and from which nothing more can be taken: no line, result, gradient or layout."""
    while smaller := next((p for p in _smaller(program) if fails(p)), None):
        program = smaller
    return program


def _smaller(program: Program) -> Iterator[Program]:
    for n in range(len(program.results)):
        if len(program.results) > 1:
            yield replace(program, results=(*program.results[:n], *program.results[n + 1 :]))
    for n in reversed(range(len(program.lines))):
        lines = (*program.lines[:n], *program.lines[n + 1 :])
        yield replace(program, lines=lines)
        name, _, text = program.lines[n].partition(" = ")
        for other in _read(text):
            if name[1:].isdigit() and other != name:
                swapped = tuple(_renamed(line, name, other) for line in program.lines[n + 1 :])
                results = tuple(dict.fromkeys(other if r == name else r for r in program.results))
                yield replace(program, lines=program.lines[:n] + swapped, results=results)
    for n, given in enumerate(program.given):
        for plainer in ({"differentiated": False}, {"layout": "contiguous"}, {"special": False}, {"dtype": "f32"}):
            if replace(given, **plainer) != given:
                yield replace(program, given=(*program.given[:n], replace(given, **plainer), *program.given[n + 1 :]))


def _read(text: str) -> list[str]:
    words = "".join(c if c in string.ascii_letters + string.digits + "_" else " " for c in text).split()
    return list(dict.fromkeys(w for w in words if w[0] == "v" and w[1:].isdigit()))


def _renamed(line: str, name: str, other: str) -> str:
    found, word = [], ""
    for c in line + "\0":
        if c.isalnum() or c == "_":
            word += c
            continue
        found += [other if word == name else word, c]
        word = ""
    return "".join(found)[:-1]
