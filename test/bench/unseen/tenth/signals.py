"""Functions of the tenth list: audio, robotics, finance, physics."""

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
    return lambda: [torch.rand(shape) + 0.05 for shape in shapes]


def spectral_flux(x: Tensor) -> Tensor:
    """Rises of log magnitudes over time, less a moving mean: [batch, bins, time]."""
    rise = F.relu(torch.log1p(x).diff(dim=-1)).sum(1)
    return rise - F.avg_pool1d(F.pad(rise, (4, 4), mode="replicate"), 9, 1)


def gated_loudness(x: Tensor) -> Tensor:
    """Loudness of overlapping blocks, averaged where it is above a gate: [batch, channels, time]."""
    power = x.unfold(-1, 1600, 400).square().mean(-1).sum(1)
    level = -0.691 + 10 * torch.log10(power + 1e-9)
    loud = (level > level.mean(-1, keepdim=True) - 10).to(x.dtype)
    return 10 * torch.log10((power * loud).sum(-1) / loud.sum(-1).clamp(min=1) + 1e-9)


def normed_difference(x: Tensor) -> Tensor:
    """Yin's difference over its mean up to each lag: [frames, lags]."""
    lag = torch.arange(1, x.shape[-1] + 1)
    return x * lag / (x.cumsum(-1) + 1e-6)


def oscillators(pitch: Tensor, loud: Tensor) -> Tensor:
    """Harmonics of a phase that adds up a pitch: [batch, time], [batch, time, harmonics]."""
    phase = torch.cumsum(pitch * (2 * math.pi / 16_000), -1)
    number = torch.arange(1, loud.shape[-1] + 1)
    seen = (pitch[..., None] * number < 8000).to(loud.dtype)
    return (torch.sin(phase[..., None] * number) * loud * seen).sum(-1)


def wider_stereo(x: Tensor, width: Tensor) -> Tensor:
    """Middle and side of two channels, the side scaled, soft clipping: [batch, 2, time]."""
    middle, side = (x[:, 0] + x[:, 1]) * 0.5, (x[:, 0] - x[:, 1]) * 0.5 * width
    return torch.tanh(torch.stack([middle + side, middle - side], 1) * 1.2)


def invariant_noise(x: Tensor, y: Tensor) -> Tensor:
    """Scale-invariant ratio of a signal to what differs from it: [batch, time]."""
    x, y = x - x.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)
    aim = (x * y).sum(-1, keepdim=True) / (y.square().sum(-1, keepdim=True) + 1e-8) * y
    off = x - aim
    return -10 * torch.log10(aim.square().sum(-1) / (off.square().sum(-1) + 1e-8) + 1e-8).mean()


def frequency_masks(x: Tensor, start: Tensor, length: Tensor) -> Tensor:
    """A band of each spectrogram replaced by its mean: [batch, bins, time]."""
    bin_ = torch.arange(x.shape[1])
    inside = (bin_ >= start[:, None]) & (bin_ < (start + length)[:, None])
    return torch.where(inside[..., None], x.mean((1, 2), keepdim=True), x)


def turned_error(a: Tensor, b: Tensor) -> Tensor:
    """Axis times angle of what turns one frame into another: [n, 3, 3]."""
    r = a.mT @ b
    angle = torch.acos(((r.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2).clamp(-0.999, 0.999))
    axis = torch.stack([r[:, 2, 1] - r[:, 1, 2], r[:, 0, 2] - r[:, 2, 0], r[:, 1, 0] - r[:, 0, 1]], -1)
    return axis * (angle / (2 * torch.sin(angle)))[:, None]


def odometry(speed: Tensor, turn: Tensor) -> Tensor:
    """Paths of wheeled robots from speeds and turns: [robots, time]."""
    heading = torch.cumsum(turn * 0.02, -1)
    x = torch.cumsum(speed * torch.cos(heading) * 0.02, -1)
    y = torch.cumsum(speed * torch.sin(heading) * 0.02, -1)
    return torch.stack([x, y, heading], -1)


def log_odds(grid: Tensor, hit: Tensor, seen: Tensor) -> Tensor:
    """A map of occupied cells after an observation, and its chances."""
    grid = (grid + torch.where(hit & seen, 0.85, torch.where(seen, -0.4, 0.0))).clamp(-4, 4)
    return 1 - 1 / (1 + grid.exp())


def seen_by_camera(point: Tensor, turn: Tensor, shift: Tensor, focus: Tensor) -> Tensor:
    """Pixels of points with radial distortion, zeros behind a camera: [n, 3]."""
    p = point @ turn.T + shift
    z = p[:, 2:].clamp(min=0.1)
    flat = p[:, :2] / z
    r = flat.square().sum(-1, keepdim=True)
    return torch.where(p[:, 2:] > 0.1, flat * (1 + 0.1 * r + 0.01 * r * r) * focus[:2] + focus[2:], 0.0)


def resampled(weight: Tensor, state: Tensor) -> Tensor:
    """Systematic resampling of particles by their log weights: [filters, particles], [.., .., 4]."""
    share = torch.softmax(weight, -1).cumsum(-1)
    at = (torch.arange(weight.shape[-1]) + 0.5) / weight.shape[-1]
    index = torch.searchsorted(share, at.expand_as(share).contiguous()).clamp(max=weight.shape[-1] - 1)
    return state.gather(1, index[..., None].expand(-1, -1, state.shape[-1]))


def swing_energy(angle: Tensor, speed: Tensor, torque: Tensor) -> Tensor:
    """Double pendulums: one step of their equations of motion and the cost of it: [n, 2]."""
    (a, b), (u, v) = angle.unbind(-1), speed.unbind(-1)
    d = a - b
    mass = 2 - torch.cos(d) ** 2
    first = (torque[:, 0] - torch.sin(d) * (v * v + u * u * torch.cos(d)) - 19.6 * torch.sin(a)) / mass
    second = (torque[:, 1] + torch.sin(d) * (2 * u * u + v * v * torch.cos(d)) - 9.8 * torch.sin(b)) / mass
    speed = speed + 0.01 * torch.stack([first, second], -1)
    angle = angle + 0.01 * speed
    return 1 - torch.cos(angle).mean(-1) + 0.1 * speed.square().sum(-1) + 0.01 * torque.square().sum(-1)


def rolling_sharpe(x: Tensor) -> Tensor:
    """Means over deviations of the last 60 returns: [assets, days]."""
    one = F.pad(x.cumsum(-1), (1, 0))
    two = F.pad((x * x).cumsum(-1), (1, 0))
    mean = (one[:, 60:] - one[:, :-60]) / 60
    return mean / ((two[:, 60:] - two[:, :-60]) / 60 - mean * mean).clamp(min=1e-4).sqrt()


def average_price(price: Tensor, volume: Tensor) -> Tensor:
    """How far prices are from the average price of the day so far: [assets, minutes]."""
    return price / ((price * volume).cumsum(-1) / volume.cumsum(-1)) - 1


def sector_neutral(x: Tensor, sector: Tensor) -> Tensor:
    """Scores less the mean of their sectors: [days, assets] and [assets]."""
    one = torch.zeros(x.shape[0], 11, dtype=x.dtype).index_add(1, sector, x)
    count = torch.zeros(11).index_add(0, sector, torch.ones(x.shape[1]))
    return x - (one / count.clamp(min=1))[:, sector]


def bonds(flow: Tensor, when: Tensor, rate: Tensor) -> Tensor:
    """Price, duration and convexity of bonds: [bonds, payments] and [bonds]."""
    value = flow * torch.exp(-rate[:, None] * when)
    price = value.sum(-1)
    return torch.stack([price, (value * when).sum(-1) / price, (value * when * when).sum(-1) / price], -1)


def book_imbalance(size: Tensor, price: Tensor) -> Tensor:
    """Weighted imbalance and micro price of order books: [time, 2, levels]."""
    weight = torch.exp(-0.5 * torch.arange(size.shape[-1]))
    bid, ask = (size * weight).sum(-1).unbind(1)
    micro = (bid * price[:, 1, 0] + ask * price[:, 0, 0]) / (bid + ask)
    return torch.stack([(bid - ask) / (bid + ask), micro - price[:, :, 0].mean(1)], 1)


def implied_volatility(price: Tensor, strike: Tensor) -> Tensor:
    """Volatility of calls by four steps of Newton's method: spot and time of one."""
    v = torch.full_like(price, 0.4)
    for _ in range(4):
        d = (-strike.log()) / v + 0.5 * v
        n = [0.5 * (1 + torch.erf(z * 0.70710678)) for z in (d, d - v)]
        slope = 0.39894228 * torch.exp(-0.5 * d * d)
        v = (v - (n[0] - strike * n[1] - price) / slope.clamp(min=0.05)).clamp(0.05, 2)
    return v


def expected_losses(hazard: Tensor, exposure: Tensor, loss: Tensor) -> Tensor:
    """Discounted losses of loans over the months that they survive: [loans, months]."""
    alive = torch.cumprod(1 - hazard, -1)
    before = F.pad(alive[:, :-1], (1, 0), value=1.0)
    off = torch.pow(0.997, torch.arange(hazard.shape[-1]))
    return (before * hazard * exposure * loss[:, None] * off).sum(-1)


def near_pairs(position: Tensor, charge: Tensor, near: Tensor) -> Tensor:
    """Energies of charges in a periodic box over lists of neighbours: [n, 3], [n], [n, k]."""
    d = position[near] - position[:, None]
    d = d - torch.round(d)
    r = (d.square().sum(-1) + 1e-4).sqrt()
    energy = charge[near] * charge[:, None] * (torch.erfc(4 * r) / r)
    return torch.where(r < 0.4, energy, 0.0).sum(-1) * 0.5


def heat_in_solid(x: Tensor, k: Tensor) -> Tensor:
    """A step of the heat equation in a periodic solid with its own conductivity: [batch, d, h, w]."""
    flow = torch.zeros_like(x)
    for dim in (1, 2, 3):
        flow = flow + (k + k.roll(-1, dim)) * 0.5 * (x.roll(-1, dim) - x)
        flow = flow - (k + k.roll(1, dim)) * 0.5 * (x - x.roll(1, dim))
    return x + 0.1 * flow


def limited_flux(u: Tensor) -> Tensor:
    """A step of advection with van Leer's limiter: [batch, cells]."""
    step = u.diff(dim=-1)
    low, high = step[:, :-1], step[:, 1:]
    slope = torch.where(low * high > 0, 2 * low * high / (low + high + 1e-8), 0.0)
    edge = u[:, 1:-1] + 0.5 * (1 - 0.3) * slope
    return u[:, 2:-1] - 0.3 * (edge[:, 1:] - edge[:, :-1])


def strain_energy(f: Tensor, stiff: Tensor) -> Tensor:
    """Energy of deformed cells, neo-Hookean: [n, 3, 3] and [n, 2]."""
    a, b, c = f.unbind(-1)
    volume = (torch.linalg.cross(a, b) * c).sum(-1).abs() + 0.1
    log = volume.log()
    shear, bulk = stiff.unbind(-1)
    return 0.5 * shear * (f.square().sum((-1, -2)) - 3) - shear * log + 0.5 * bulk * log * log


def light_from_above(thick: Tensor, heat: Tensor) -> Tensor:
    """Radiation of layers of air that reaches the top: [columns, layers]."""
    tau = torch.cumsum(thick, -1)
    through = torch.exp(-tau)
    kept = torch.cat([torch.ones_like(through[:, :1]), through[:, :-1]], -1) - through
    return (kept * heat**4).sum(-1)


def cloud_drops(vapour: Tensor, water: Tensor, heat: Tensor) -> Tensor:
    """Condensation, rain and latent heat of cells of air."""
    full = 0.0038 * torch.exp(17.27 * heat / (heat + 237.3))
    gain = torch.where(vapour > full, (vapour - full) * 0.5, torch.maximum(vapour - full, -water) * 0.1)
    rain = 1e-3 * F.relu(water - 5e-4) + 2.2 * water * F.relu(water) ** 0.875
    return torch.stack([vapour - gain, water + gain - rain, heat + 2500 * gain])


def spin_energy(x: Tensor, coupling: Tensor) -> Tensor:
    """Energies of grids of spins of one byte, and their magnetisation: [grids, h, w]."""
    s = x.int()
    near = s.roll(1, 1) + s.roll(-1, 1) + s.roll(1, 2) + s.roll(-1, 2)
    return -coupling * (s * near).sum((1, 2)) / 2 + s.sum((1, 2))


def cumulative_trapezoid(y: Tensor, x: Tensor) -> Tensor:
    """Integrals of samples up to each point, over the whole integral: [rows, n]."""
    made = torch.cumsum((y[:, 1:] + y[:, :-1]) * 0.5 * (x[1:] - x[:-1]), -1)
    return made / made[:, -1:]


def detrended(x: Tensor) -> Tensor:
    """Rows less their line of least squares, over what is left: [rows, n]."""
    t = torch.arange(x.shape[-1], dtype=x.dtype)
    t = t - t.mean()
    off = x - x.mean(-1, keepdim=True)
    off = off - (off * t).sum(-1, keepdim=True) / t.square().sum() * t
    return off / off.std(-1, keepdim=True)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "spectral flux": (spectral_flux, _rand((16, 128, 500)), True),
    "gated loudness": (gated_loudness, _of((8, 2, 48_000)), True),
    "normed difference": (normed_difference, _rand((1500, 500)), True),
    "oscillators": (oscillators, lambda: [torch.rand(4, 8000) * 400, torch.rand(4, 8000, 24)], True),
    "wider stereo": (wider_stereo, _of((16, 2, 20_000), ()), True),
    "invariant noise": (invariant_noise, _of((32, 20_000), (32, 20_000)), True),
    "frequency masks": (
        frequency_masks,
        lambda: [torch.randn(32, 80, 300), *torch.randint(40, (2, 32))],
        True,
    ),
    "turned error": (turned_error, _of((30_000, 3, 3), (30_000, 3, 3)), True),
    "odometry": (odometry, _of((500, 800), (500, 800)), True),
    "log odds": (log_odds, lambda: [torch.randn(800, 800), *(torch.rand(2, 800, 800) < 0.5)], True),
    "seen by a camera": (seen_by_camera, _of((100_000, 3), (3, 3), (3,), (4,)), True),
    "resampled": (resampled, _of((64, 2000), (64, 2000, 4)), False),
    "swing energy": (swing_energy, _of(*[(100_000, 2)] * 3), True),
    "rolling Sharpe": (rolling_sharpe, _of((500, 1500)), True),
    "average price": (average_price, _rand((1500, 390), (1500, 390)), True),
    "sector neutral": (
        sector_neutral,
        lambda: [torch.randn(300, 2000), torch.randint(11, (2000,))],
        True,
    ),
    "bonds": (bonds, _rand((10_000, 60), (10_000, 60), (10_000,)), True),
    "book imbalance": (book_imbalance, _rand((20_000, 2, 10), (20_000, 2, 10)), True),
    "implied volatility": (implied_volatility, _rand((200_000,), (200_000,)), True),
    "expected losses": (
        expected_losses,
        lambda: [torch.rand(3000, 240) * 0.05, torch.rand(3000, 240), torch.rand(3000)],
        True,
    ),
    "near pairs": (
        near_pairs,
        lambda: [torch.rand(8000, 3), torch.randn(8000), torch.randint(8000, (8000, 24))],
        True,
    ),
    "heat in a solid": (heat_in_solid, _rand((4, 48, 48, 48), (4, 48, 48, 48)), True),
    "limited flux": (limited_flux, _of((64, 10_000)), True),
    "strain energy": (strain_energy, _rand((60_000, 3, 3), (60_000, 2)), True),
    "light from above": (light_from_above, lambda: [torch.rand(4000, 100) / 20, *_rand((4000, 100))()], True),
    "cloud drops": (
        cloud_drops,
        lambda: [torch.rand(400_000) * 0.02, torch.rand(400_000) * 1e-3, torch.rand(400_000) * 30],
        True,
    ),
    "spin energy": (
        spin_energy,
        lambda: [(torch.randint(2, (64, 100, 100)) * 2 - 1).to(torch.int8), torch.tensor(0.44)],
        False,
    ),
    "cumulative trapezoid": (cumulative_trapezoid, lambda: [torch.rand(1000, 600), *_rand((600,))()], True),
    "detrended": (detrended, _of((2000, 400)), True),
}
