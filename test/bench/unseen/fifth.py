"""Functions of the fifth list, first part: signals, physics, kinematics, prices, bits, tokens, few bits."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def _rand(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.rand(shape) for shape in shapes]


def _below(top: int, *shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randint(0, top, shape) for shape in shapes]


def companded(x: Tensor) -> Tensor:
    """Mu-law: compressed, in 256 steps, and expanded."""
    small = torch.sign(x) * torch.log1p(255 * x.abs().clamp(max=1)) / math.log(256)
    steps = ((small + 1) * 127.5).round() / 127.5 - 1
    return torch.sign(steps) * (torch.pow(256.0, steps.abs()) - 1) / 255


def fir(x: Tensor, taps: Tensor) -> Tensor:
    late = F.pad(x, (taps.shape[0] - 1, 0))
    return (late.unfold(-1, taps.shape[0], 1) * taps.flip(0)).sum(-1)


def echoes(x: Tensor) -> Tensor:
    """Three echoes of a sound, each later and weaker, and a soft limit."""
    made = x
    for delay, gain in ((441, 0.5), (882, 0.3), (1323, 0.2)):
        made = made + gain * F.pad(x, (delay, 0))[..., : x.shape[-1]]
    return torch.tanh(made)


def lattice_boltzmann(f: Tensor) -> Tensor:
    moves = [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, -1), (-1, 1)]
    weights = f.new_tensor([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)[:, None, None]
    e = f.new_tensor(moves)
    f = torch.stack([f[n].roll(move, (0, 1)) for n, move in enumerate(moves)])
    mass = f.sum(0)
    u = torch.einsum("qd,qhw->dhw", e, f) / mass
    eu = torch.einsum("qd,dhw->qhw", e, u)
    calm = weights * mass * (1 + 3 * eu + 4.5 * eu**2 - 1.5 * (u**2).sum(0))
    return f - (f - calm) / 0.6


def advected(c: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Upwind differences of a field that moves with (u, v)."""
    wide = F.pad(c[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    back_x, next_x = c - wide[:, 1:-1, :-2], wide[:, 1:-1, 2:] - c
    back_y, next_y = c - wide[:, :-2, 1:-1], wide[:, 2:, 1:-1] - c
    return c - 0.2 * (torch.where(u > 0, u * back_x, u * next_x) + torch.where(v > 0, v * back_y, v * next_y))


def ising(spins: Tensor, uniform: Tensor) -> Tensor:
    near = spins.roll(1, -1) + spins.roll(-1, -1) + spins.roll(1, -2) + spins.roll(-1, -2)
    gain = 2 * spins * near
    return torch.where(uniform < torch.exp(-0.44 * gain.float()), -spins, spins)


def arm(angles: Tensor) -> Tensor:
    """The hand's position of an arm of six joints, by products of 4 x 4 matrices."""
    c, s = angles.cos(), angles.sin()
    zero, one = torch.zeros_like(c), torch.ones_like(c)
    tilt = torch.arange(6, dtype=angles.dtype) % 2
    rows = [
        torch.stack([c, -s * (1 - tilt), s * tilt, 0.3 * c], -1),
        torch.stack([s, c * (1 - tilt), -c * tilt, 0.3 * s], -1),
        torch.stack([zero, one * tilt, one * (1 - tilt), 0.1 * one], -1),
        torch.stack([zero, zero, zero, one], -1),
    ]
    joints = torch.stack(rows, -2)
    pose = joints[:, 0]
    for n in range(1, 6):
        pose = pose @ joints[:, n]
    return pose[:, :3, 3]


def rotated_by_vectors(w: Tensor, x: Tensor) -> Tensor:
    """Rodrigues' formula."""
    angle = w.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    k = w / angle
    dot = (k * x).sum(-1, keepdim=True)
    return x * angle.cos() + torch.linalg.cross(k, x) * angle.sin() + k * dot * (1 - angle.cos())


def quaternion_product(p: Tensor, q: Tensor) -> Tensor:
    a, b, c, d = p.unbind(-1)
    e, f, g, h = q.unbind(-1)
    made = [
        a * e - b * f - c * g - d * h,
        a * f + b * e + c * h - d * g,
        a * g - b * h + c * e + d * f,
        a * h + b * g - c * f + d * e,
    ]
    return F.normalize(torch.stack(made, -1), dim=-1)


def black_scholes(spot: Tensor, strike: Tensor, years: Tensor, deviation: Tensor) -> Tensor:
    years, deviation = years + 0.05, deviation * 0.4 + 0.1
    spread = deviation * years.sqrt()
    d1 = (torch.log((spot + 0.5) / (strike + 0.5)) + (0.02 + deviation**2 / 2) * years) / spread
    share = 0.5 * (1 + torch.erf(d1 / math.sqrt(2)))
    rest = 0.5 * (1 + torch.erf((d1 - spread) / math.sqrt(2)))
    return (spot + 0.5) * share - (strike + 0.5) * torch.exp(-0.02 * years) * rest


def drawdown(x: Tensor) -> Tensor:
    price = torch.exp(x.mul(0.01).cumsum(-1))
    return (price / price.cummax(-1).values - 1).amin(-1)


def bollinger(x: Tensor) -> Tensor:
    """How far prices are from the mean of the last 20, in deviations."""
    total = F.pad(x.cumsum(-1), (1, 0))
    squares = F.pad((x * x).cumsum(-1), (1, 0))
    mean = (total[..., 20:] - total[..., :-20]) / 20
    variance = (squares[..., 20:] - squares[..., :-20]) / 20 - mean * mean
    return (x[..., 19:] - mean) / (variance.clamp(min=0) + 1e-2).sqrt()


def bits_set(x: Tensor) -> Tensor:
    x = x - ((x >> 1) & 0x5555555555555555)
    x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F
    x = x + (x >> 8)
    x = x + (x >> 16)
    return (x + (x >> 32)) & 127


def morton(points: Tensor) -> Tensor:
    """Codes along a Z curve: the interleaved bits of three coordinates."""
    x = (points * 1023).to(torch.int32)
    x = (x | (x << 16)) & 0x030000FF
    x = (x | (x << 8)) & 0x0300F00F
    x = (x | (x << 4)) & 0x030C30C3
    x = (x | (x << 2)) & 0x09249249
    return x[:, 0] | (x[:, 1] << 1) | (x[:, 2] << 2)


def hashed_ngrams(tokens: Tensor, table: Tensor) -> Tensor:
    before = F.pad(tokens, (1, 0))[:, :-1]
    earlier = F.pad(tokens, (2, 0))[:, :-2]
    pair = (tokens * 1000003 + before * 8191) % table.shape[0]
    three = (pair * 1000003 + earlier * 131) % table.shape[0]
    return table[tokens % table.shape[0]] + table[pair] + table[three]


def document_mask(scores: Tensor, tokens: Tensor) -> Tensor:
    """Softmax in which a token sees those before it in its own document."""
    document = (tokens == 0).cumsum(-1)
    at = torch.arange(tokens.shape[-1])
    seen = (document[:, :, None] == document[:, None]) & (at[:, None] >= at[None])
    return torch.softmax(scores.masked_fill(~seen[:, None], -math.inf), -1)


def three_bits(packed: Tensor, scale: Tensor) -> Tensor:
    """Ten numbers of three bits in each integer of 32 bits."""
    numbers = (packed[..., None] >> (torch.arange(10, dtype=torch.int32) * 3)) & 7
    return (numbers.flatten(-2).unflatten(-1, (-1, 40)).to(scale.dtype) - 3.5) * scale[..., None]


def small_floats(x: Tensor) -> Tensor:
    """Round to 3 bits of mantissa and 4 of exponent, with a scale for each row."""
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    y = x / scale
    exponent = torch.floor(torch.log2(y.abs().clamp(min=2.0**-6)))
    step = torch.exp2(exponent - 3)
    return (y / step).round() * step * scale


def ternary(x: Tensor, w: Tensor) -> Tensor:
    """Products with weights of -1, 0 and 1, and activations of 8 bits; gradients pass the rounding."""
    scale = w.abs().mean().clamp(min=1e-5)
    rounded = (w / scale).round().clamp(-1, 1) * scale
    w = w + (rounded - w).detach()
    top = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    x = x + ((x * top).round().clamp(-128, 127) / top - x).detach()
    return x @ w.T


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "mu law": (companded, _of((32, 16000)), False),
    "filter of 24 taps": (fir, _of((16, 16000), (24,)), True),
    "echoes": (echoes, _of((16, 44100)), True),
    "lattice Boltzmann": (lattice_boltzmann, lambda: [torch.rand(9, 256, 256) + 0.5], True),
    "upwind differences": (advected, _of((8, 256, 256), (8, 256, 256), (8, 256, 256)), True),
    "ising": (
        ising,
        lambda: [torch.randint(0, 2, (8, 512, 512), dtype=torch.int8) * 2 - 1, torch.rand(8, 512, 512)],
        False,
    ),
    "arm of six joints": (arm, _of((20_000, 6)), True),
    "rotated by vectors": (rotated_by_vectors, _of((100_000, 3), (100_000, 3)), True),
    "product of quaternions": (quaternion_product, _of((100_000, 4), (100_000, 4)), True),
    "black scholes": (black_scholes, _rand(*[(1000, 500)] * 4), True),
    "drawdown": (drawdown, _of((512, 2000)), True),
    "bollinger": (bollinger, _of((256, 2000)), True),
    "bits set": (bits_set, _below(1 << 62, (1024, 1024)), False),
    "morton codes": (morton, _rand((500_000, 3)), False),
    "hashed n-grams": (
        hashed_ngrams,
        lambda: [torch.randint(0, 50000, (16, 512)), torch.randn(10007, 64)],
        True,
    ),
    "mask of documents": (
        document_mask,
        lambda: [torch.randn(4, 8, 256, 256), torch.randint(0, 60, (4, 256))],
        True,
    ),
    "three bits": (
        three_bits,
        lambda: [torch.randint(0, 1 << 30, (1024, 128), dtype=torch.int32), torch.rand(1024, 32)],
        False,
    ),
    "small floats": (small_floats, _of((1024, 1024)), False),
    "ternary weights": (ternary, _of((512, 512), (512, 512)), True),
}
"""Name: the function, its tensors, and whether it has gradients."""
