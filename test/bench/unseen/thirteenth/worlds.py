"""Functions of the thirteenth list that simulate or measure: sounds, fluids, bodies, orbits."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def subtracted_noise(x: Tensor, noise: Tensor) -> Tensor:
    """Frames less the spectrum of a noise, phases kept: [n, 512], [257]."""
    spectrum = torch.fft.rfft(x)
    size = spectrum.abs()
    gain = (1 - 1.5 * noise / (size + 1e-6)).clamp(min=0.05)
    return torch.fft.irfft(spectrum * gain, n=x.shape[-1])


def prediction_error(x: Tensor, a: Tensor) -> Tensor:
    """Residual of a linear predictor of 12 taps, each row with its own: [n, time], [n, 12]."""
    past = F.pad(x, (12, 0)).unfold(1, 12, 1)[:, :-1]
    return x - (past * a[:, None]).sum(-1)


def resampled_by_phases(x: Tensor, w: Tensor) -> Tensor:
    """Three samples for each two by three phases of a filter: [n, 1, time], [3, 1, 24]."""
    y = F.conv1d(F.pad(x, (11, 12)), w, stride=2)
    return y.transpose(1, 2).flatten(1)


def frequency_modulated(f: Tensor, index: Tensor, level: Tensor) -> Tensor:
    """Tones whose phase is a running sum of frequencies, modulated twice: three of [n, time]."""
    phase = 2 * math.pi * (f.abs() / 100).cumsum(1)
    inner = torch.sin(2 * phase) * index
    return torch.sigmoid(level) * torch.sin(phase + inner + 0.3 * torch.sin(3 * phase))


def followed_envelope(x: Tensor) -> Tensor:
    """Levels that rise fast and fall slowly, a loop over 24 blocks: [24, channels]."""
    level = torch.zeros_like(x[0])
    out: list[Tensor] = []
    for block in x.abs():
        rate = torch.where(block > level, 0.6, 0.05)
        level = level + rate * (block - level)
        out.append(level)
    return torch.stack(out)


def smoothed_by_parabolas(x: Tensor, w: Tensor) -> Tensor:
    """A smoothing filter of 11 taps, the same for all channels, at repeated ends: [n, c, time], [11]."""
    n, c, time = x.shape
    flat = F.pad(x, (5, 5), mode="replicate").view(n * c, 1, time + 10)
    return F.conv1d(flat, w.view(1, 1, 11)).view(n, c, time)


def oblate_gravity(x: Tensor) -> Tensor:
    """Accelerations around an oblate planet: [n, 3]."""
    r2 = x.square().sum(-1, keepdim=True)
    r = r2.sqrt() + 1e-3
    z2 = x[:, 2:].square() / r2
    factor = 1.5 * 1e-3 / r2
    scale = torch.cat([1 + factor * (1 - 5 * z2)] * 2 + [1 + factor * (3 - 5 * z2)], -1)
    return -x / r.pow(3) * scale


def cloth(x: Tensor, before: Tensor) -> Tensor:
    """A step of a cloth by positions, with two rounds of corrections: [n, h, w, 3] twice."""
    x = 1.99 * x - 0.99 * before - 0.001 * torch.tensor([0.0, 0.0, 9.8], dtype=x.dtype)
    for _ in range(2):
        for dim in (1, 2):
            d = x.diff(dim=dim)
            length = d.norm(dim=-1, keepdim=True).clamp(min=1e-6)
            push = 0.25 * d * (1 - 0.1 / length)
            pad = [0, 0] * (3 - dim)
            x = x + F.pad(push, [*pad, 0, 1]) - F.pad(push, [*pad, 1, 0])
    return x


def carried_back(q: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """A field traced back along a flow on a torus, bilinear by indices: three of [h, w]."""
    h, w = q.shape
    y = torch.arange(h, dtype=q.dtype)[:, None] - v
    x = torch.arange(w, dtype=q.dtype) - u
    y0, x0 = y.floor(), x.floor()
    fy, fx = y - y0, x - x0
    i, j = y0.long() % h, x0.long() % w
    k, m = (i + 1) % h, (j + 1) % w
    top = q[i, j] * (1 - fx) + q[i, m] * fx
    low = q[k, j] * (1 - fx) + q[k, m] * fx
    return top * (1 - fy) + low * fy


def flock(x: Tensor, v: Tensor) -> Tensor:
    """New velocities of birds that align, gather and avoid each other: [n, 2] twice."""
    off = x[None] - x[:, None]
    d2 = off.square().sum(-1)
    near = ((d2 < 1.0) & (d2 > 0)).to(x.dtype)
    count = near.sum(1, keepdim=True).clamp(min=1)
    together = (near @ x) / count - x
    aligned = (near @ v) / count - v
    apart = -(off * (near / (d2 + 0.01))[..., None]).sum(1)
    v = v + 0.01 * together + 0.05 * aligned + 0.02 * apart
    speed = v.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    return v * (speed.clamp(max=2.0) / speed)


def rusanov_step(u: Tensor) -> Tensor:
    """A step of a gas in a tube, with the flux of Rusanov: [n, 3, cells] of densities, flows, energies."""
    density = u[:, 0].abs() + 0.5
    speed = u[:, 1] / density
    energy = u[:, 2].abs() + speed.square() * density
    pressure = 0.4 * (energy - 0.5 * density * speed.square())
    state = torch.stack([density, density * speed, energy], 1)
    flux = torch.stack([density * speed, density * speed.square() + pressure, (energy + pressure) * speed], 1)
    sound = speed.abs() + torch.sqrt(1.4 * pressure / density)
    fastest = torch.maximum(sound[:, 1:], sound[:, :-1])[:, None]
    between = 0.5 * (flux[..., 1:] + flux[..., :-1]) - 0.5 * fastest * (state[..., 1:] - state[..., :-1])
    return F.pad(state[..., 1:-1] - 0.1 * (between[..., 1:] - between[..., :-1]), (1, 1), mode="replicate")


def heart_tissue(v: Tensor, w: Tensor) -> Tensor:
    """Two steps of excitable tissue, with a Laplacian of nine points on a torus: [n, h, w] twice."""
    for _ in range(2):
        sides = v.roll(1, 1) + v.roll(-1, 1) + v.roll(1, 2) + v.roll(-1, 2)
        up, down = v.roll(1, 1), v.roll(-1, 1)
        corners = up.roll(1, 2) + up.roll(-1, 2) + down.roll(1, 2) + down.roll(-1, 2)
        spread = 0.2 * sides + 0.05 * corners - v
        v, w = v + 0.1 * (v - v.pow(3) / 3 - w + spread), w + 0.008 * (v + 0.7 - 0.8 * w)
    return torch.stack([v, w])


def thin_films(depth: Tensor, index: Tensor, wave: Tensor) -> Tensor:
    """Reflectance of six films by products of 2 x 2 matrices: [n, 6] twice, [waves]."""
    a, d = (torch.ones(len(depth), len(wave), dtype=depth.dtype) for _ in range(2))
    b, c = (torch.zeros(len(depth), len(wave), dtype=depth.dtype) for _ in range(2))
    for i in range(6):
        n = 1 + index[:, i, None].sigmoid()
        phase = 2 * math.pi * n * depth[:, i, None] / wave
        s, k = torch.sin(phase), torch.cos(phase)
        a, b, c, d = a * k - b * n * s, a * s / n + b * k, c * k + d * n * s, d * k - c * s / n
    top = (a - 1.5 * d).square() + (1.5 * b - c).square()
    return top / ((a + 1.5 * d).square() + (1.5 * b + c).square())


def nerve_gates(v: Tensor, m: Tensor, h: Tensor, n: Tensor) -> Tensor:
    """A step of the four equations of a nerve (Hodgkin and Huxley): four of [cells]."""

    def ramp(x: Tensor) -> Tensor:
        return torch.where(x.abs() < 1e-4, 1 + x / 2, x / -torch.expm1(-x))

    v = 20 * v - 60
    m, h, n = m.sigmoid(), h.sigmoid(), n.sigmoid()
    dm = ramp((v + 40) / 10) * (1 - m) - 4 * torch.exp(-(v + 65) / 18) * m
    dh = 0.07 * torch.exp(-(v + 65) / 20) * (1 - h) - h / (1 + torch.exp(-(v + 35) / 10))
    dn = 0.1 * ramp((v + 55) / 10) * (1 - n) - 0.125 * torch.exp(-(v + 65) / 80) * n
    current = 120 * m.pow(3) * h * (v - 50) + 36 * n.pow(4) * (v + 77) + 0.3 * (v + 54.4)
    return torch.stack([v - 0.01 * current, m + 0.01 * dm, h + 0.01 * dh, n + 0.01 * dn])


def banana_walk(x: Tensor, step: Tensor, luck: Tensor) -> Tensor:
    """Eight steps of Metropolis on a curved density: [n, 2], [8, n, 2], [8, n]."""

    def energy(p: Tensor) -> Tensor:
        return 0.5 * p[:, 0].square() + 2 * (p[:, 1] - p[:, 0].square() + 1).square()

    here = energy(x)
    for s, u in zip(step, luck, strict=True):
        to = x + 0.5 * s
        there = energy(to)
        taken = u.log() < here - there
        x = torch.where(taken[:, None], to, x)
        here = torch.where(taken, there, here)
    return x


def haar_packets(x: Tensor) -> Tensor:
    """Two levels of Haar's transform of pictures, bands as channels: [n, c, h, w]."""
    for _ in range(2):
        a, b = x[..., ::2, :] + x[..., 1::2, :], x[..., ::2, :] - x[..., 1::2, :]
        x = torch.cat([a[..., ::2] + a[..., 1::2], a[..., ::2] - a[..., 1::2]], 1)
        x = 0.5 * torch.cat([x, b[..., ::2] + b[..., 1::2], b[..., ::2] - b[..., 1::2]], 1)
    return x


def walsh_hadamard(x: Tensor, sign: Tensor) -> Tensor:
    """Rows with random signs through the butterflies of Walsh and Hadamard: [n, 256], [256]."""
    n, k = x.shape
    x = x * sign
    span = 1
    while span < k:
        x = x.view(n, -1, 2, span)
        x = torch.cat([x[:, :, :1] + x[:, :, 1:], x[:, :, :1] - x[:, :, 1:]], 2).view(n, k)
        span *= 2
    return x / 16


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "noise subtracted": (subtracted_noise, lambda: [torch.randn(400, 512), 5 * torch.rand(257)], False),
    "prediction error": (prediction_error, _of((64, 4001), (64, 12)), True),
    "resampled by phases": (resampled_by_phases, _of((32, 1, 8000), (3, 1, 24)), True),
    "frequency modulated": (frequency_modulated, lambda: [*torch.randn(3, 32, 4000)], True),
    "followed envelope": (followed_envelope, _of((24, 20_000)), True),
    "smoothed by parabolas": (smoothed_by_parabolas, _of((16, 20, 1500), (11,)), True),
    "oblate gravity": (oblate_gravity, _of((50_001, 3)), True),
    "cloth": (cloth, _of((8, 48, 48, 3), (8, 48, 48, 3)), True),
    "carried back": (carried_back, lambda: [torch.randn(333, 301), *(2 * torch.randn(2, 333, 301))], True),
    "flock": (flock, _of((500, 2), (500, 2)), True),
    "rusanov step": (rusanov_step, _of((50, 3, 2000)), True),
    "heart tissue": (heart_tissue, _of((4, 160, 160), (4, 160, 160)), True),
    "thin films": (
        thin_films,
        lambda: [torch.rand(300, 6), torch.randn(300, 6), torch.linspace(0.4, 0.8, 101)],
        True,
    ),
    "nerve gates": (nerve_gates, _of(*[(60_000,)] * 4), True),
    "banana walk": (
        banana_walk,
        lambda: [torch.randn(10_000, 2), torch.randn(8, 10_000, 2), torch.rand(8, 10_000)],
        False,
    ),
    "haar packets": (haar_packets, _of((8, 3, 128, 128)), True),
    "walsh and hadamard": (
        walsh_hadamard,
        lambda: [torch.randn(1000, 256), torch.randn(256).sign()],
        True,
    ),
}
