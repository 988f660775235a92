"""Functions of the seventh list, first part: optics, orbits, kinetics, epidemics, roads, photographs."""

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


def fresnel(angle: Tensor, index: Tensor) -> Tensor:
    """Reflected light of both polarisations, by Fresnel's equations."""
    cosine = torch.cos(angle * 1.5)
    inner = torch.sqrt(1 - (1 - cosine * cosine) / (1.3 + index) ** 2)
    n = 1.3 + index
    across = ((cosine - n * inner) / (cosine + n * inner)) ** 2
    along = ((inner - n * cosine) / (inner + n * cosine)) ** 2
    return (across + along) / 2


def kepler(mean: Tensor, eccentricity: Tensor) -> Tensor:
    """Kepler's equation by five of Newton's steps, and the place on the orbit."""
    e = 0.8 * eccentricity
    at = mean + e * torch.sin(mean)
    for _ in range(5):
        at = at - (at - e * torch.sin(at) - mean) / (1 - e * torch.cos(at))
    return torch.stack([torch.cos(at) - e, torch.sqrt(1 - e * e) * torch.sin(at)], -1)


def kinetics(x: Tensor, rate: Tensor) -> Tensor:
    """Twelve explicit steps of three reactions (Robertson's, slower): [3, cells]."""
    a, b, c = x
    for _ in range(12):
        first, second, third = rate[0] * a, rate[1] * b * c, rate[2] * b * b
        a, b, c = (
            a + 0.01 * (second - first),
            b + 0.01 * (first - second - third),
            c + 0.01 * third,
        )
    return torch.stack([a, b, c])


def epidemic(s: Tensor, i: Tensor, contacts: Tensor) -> Tensor:
    """Ten days of an epidemic in towns that visit each other."""
    r, days = torch.zeros_like(s), []
    for _ in range(10):
        new = 0.3 * s * (i @ contacts)
        s, i, r = s - new, i + new - 0.1 * i, r + 0.1 * i
        days.append(i)
    return torch.stack(days, 1) + r[:, None]


def car_following(gap: Tensor, speed: Tensor) -> Tensor:
    """Accelerations of the intelligent driver model, on rings of cars."""
    approach = speed - speed.roll(-1, -1)
    wished = 2 + speed * 1.5 + speed * approach / (2 * math.sqrt(1.5 * 2))
    return 1.5 * (1 - (speed / 30) ** 4 - (wished.clamp(min=0) / (gap + 0.5)) ** 2)


def morse(x: Tensor) -> Tensor:
    """Energies of Morse bonds along chains of atoms, and of their angles: [chains, atoms, 3]."""
    bond = x[:, 1:] - x[:, :-1]
    length = bond.norm(dim=-1)
    stretch = (1 - torch.exp(-1.2 * (length - 1))) ** 2
    cosine = (bond[:, 1:] * bond[:, :-1]).sum(-1) / (length[:, 1:] * length[:, :-1])
    return stretch.sum(-1) + 0.5 * ((cosine - 0.3) ** 2).sum(-1)


def von_mises(stress: Tensor) -> Tensor:
    """Equivalent stress of symmetric tensors (xx, yy, zz, xy, yz, zx) along dim 1."""
    x, y, z, xy, yz, zx = stress.unbind(1)
    direct = (x - y) ** 2 + (y - z) ** 2 + (z - x) ** 2
    return torch.sqrt(0.5 * direct + 3 * (xy**2 + yz**2 + zx**2) + 1e-6)


def vorticity(u: Tensor, v: Tensor) -> Tensor:
    """Curl inside of a grid by central differences, and its smoothed magnitude."""
    curl = (v[:, 1:-1, 2:] - v[:, 1:-1, :-2] - u[:, 2:, 1:-1] + u[:, :-2, 1:-1]) / 2
    return F.avg_pool2d(curl[:, None].abs(), 3, 1, 1)[:, 0] * curl


def to_lab(x: Tensor) -> Tensor:
    """CIE Lab of linear colours: [N, 3, H, W]."""
    r, g, b = x.unbind(1)
    xyz = torch.stack(
        [
            (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
            0.2126 * r + 0.7152 * g + 0.0722 * b,
            (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
        ],
        1,
    )
    f = torch.where(xyz > 0.008856, (xyz + 1e-6) ** (1 / 3), 7.787 * xyz + 16 / 116)
    x, y, z = f.unbind(1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], 1)


def demosaiced(raw: Tensor) -> Tensor:
    """Colours of a Bayer mosaic, each block of 2 x 2 pixels as one: gains, then a gamma."""
    red, blue = raw[:, 0::2, 0::2], raw[:, 1::2, 1::2]
    green = (raw[:, 0::2, 1::2] + raw[:, 1::2, 0::2]) / 2
    return (torch.stack([red * 1.9, green, blue * 1.4], 1) + 1e-4) ** (1 / 2.2)


def unsharp(x: Tensor) -> Tensor:
    """An unsharp mask with a soft threshold, and a vignette."""
    wide = F.pad(x, (1, 1, 1, 1), mode="replicate")
    near = wide[..., :-2, 1:-1] + wide[..., 2:, 1:-1] + wide[..., 1:-1, :-2] + wide[..., 1:-1, 2:]
    detail = x - near / 4
    detail = detail.sign() * F.relu(detail.abs() - 0.02)
    at = torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype)
    return (x + 1.5 * detail) / (1 + 0.3 * (at[:, None] ** 2 + at**2))


def compressor(x: Tensor) -> Tensor:
    """A compressor of sound: levels over frames of 256, gains between them, a soft clip."""
    frames = x.unflatten(-1, (-1, 256))
    level = torch.log10(frames.pow(2).mean(-1) + 1e-8) * 10
    gain = -0.75 * F.relu(level + 20)
    return torch.tanh(frames * (10 ** (gain / 20))[..., None]).flatten(-2)


def fm_voice(pitch: Tensor, depth: Tensor) -> Tensor:
    """A voice of three oscillators that modulate each other, under an envelope."""
    time = torch.arange(pitch.shape[1], dtype=pitch.dtype) / 16000
    phase = (1 + pitch * 0.01) * time * 440
    made = torch.sin(phase + depth * torch.sin(2 * phase + 0.3 * torch.sin(5 * phase)))
    return made * torch.exp(-3 * time) * torch.clamp(time * 50, max=1)


def onset(x: Tensor) -> Tensor:
    """Seismologists' ratio of a short and a long average of energies."""
    energy = (x * x)[:, None]
    short, long = F.avg_pool1d(energy, 16, 4, 0), F.avg_pool1d(energy, 128, 4, 0)
    return (short[..., : long.shape[-1]] / (long + 1e-3)).squeeze(1)


def mercator(x: Tensor) -> Tensor:
    """Geodetic to earth-centred places, and Mercator's map: [points, 3]."""
    latitude, longitude, height = (x * torch.tensor([0.5, 1.0, 100.0], dtype=x.dtype)).unbind(-1)
    sine, cosine = torch.sin(latitude), torch.cos(latitude)
    n = 6378.137 / torch.sqrt(1 - 0.00669438 * sine * sine)
    flat = [(n + height) * cosine * torch.cos(longitude), (n + height) * cosine * torch.sin(longitude)]
    return torch.stack([*flat, (n * 0.9933 + height) * sine, torch.atanh(0.9 * torch.sin(latitude))], -1)


def annuity(rates: Tensor, deaths: Tensor) -> Tensor:
    """Present values of annuities: [years, contracts]."""
    alive = torch.ones_like(deaths[0])
    factor, value = torch.ones_like(rates[0]), torch.zeros_like(rates[0])
    for year in range(rates.shape[0]):
        alive = alive * (1 - 0.05 * deaths[year])
        factor = factor / (1 + 0.04 * rates[year])
        value = value + alive * factor
    return value


def pid(target: Tensor, noise: Tensor) -> Tensor:
    """A controller of many plants, step by step: [steps, plants]."""
    state, total, last, made = target[0] * 0, target[0] * 0, target[0] * 0, []
    for n in range(target.shape[0]):
        error = target[n] - state
        total = (total + 0.1 * error).clamp(-2, 2)
        push = 0.8 * error + 0.3 * total + 0.05 * (error - last)
        state, last = 0.9 * state + 0.2 * torch.tanh(push) + 0.01 * noise[n], error
        made.append(state)
    return torch.stack(made)


def structure_factors(at: Tensor, weight: Tensor, wave: Tensor) -> Tensor:
    """Intensities of diffracted waves: sums over atoms of sines and cosines."""
    phase = 2 * math.pi * (wave @ at.T)
    return (weight * torch.cos(phase)).sum(-1) ** 2 + (weight * torch.sin(phase)).sum(-1) ** 2


def coils(real: Tensor, imaginary: Tensor) -> Tensor:
    """A magnetic resonance image from twelve coils: phases aligned to the first, root of sums of squares."""
    size = torch.sqrt((real**2 + imaginary**2).sum(1) + 1e-6)
    cosine, sine = real[:, :1] / size[:, None], imaginary[:, :1] / size[:, None]
    turned = real * cosine + imaginary * sine
    return size + 0.1 * turned.mean(1)


def gc_skew(bases: Tensor) -> Tensor:
    """Skew of bases in windows of 64 of each sequence."""
    windows = bases.unfold(-1, 64, 32)
    g, c = (windows == 2).sum(-1), (windows == 1).sum(-1)
    return (g - c).float() / (g + c).clamp(min=1).float()


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "fresnel": (fresnel, _rand((512, 1024), (512, 1024)), True),
    "kepler": (kepler, _rand((200_000,), (200_000,)), True),
    "kinetics": (kinetics, _rand((3, 50_000), (3, 50_000)), True),
    "epidemic": (epidemic, lambda: [*(torch.rand(512, 128) for _ in "si"), torch.rand(128, 128) / 128], True),
    "car following": (car_following, lambda: [torch.rand(512, 500) * 30, torch.rand(512, 500) * 20], True),
    "morse chains": (morse, _of((512, 200, 3)), True),
    "equivalent stress": (von_mises, _of((8, 6, 160, 160)), True),
    "vorticity": (vorticity, _of((8, 200, 200), (8, 200, 200)), True),
    "lab colours": (to_lab, _rand((4, 3, 256, 256)), True),
    "demosaiced": (demosaiced, _rand((8, 320, 320)), True),
    "unsharp mask": (unsharp, _rand((8, 3, 160, 160)), True),
    "compressor": (compressor, _of((16, 32_000)), True),
    "FM voice": (fm_voice, _rand((16, 16_000), (16, 16_000)), True),
    "onset of quakes": (onset, _of((16, 40_000)), True),
    "mercator": (mercator, _rand((100_000, 3)), True),
    "annuity": (annuity, _rand((30, 10_000), (30, 10_000)), True),
    "controller": (pid, _of((16, 20_000), (16, 20_000)), True),
    "structure factors": (structure_factors, _rand((400, 3), (400,), (1000, 3)), True),
    "coils": (coils, _of((4, 12, 128, 128), (4, 12, 128, 128)), True),
    "GC skew": (gc_skew, lambda: [torch.randint(4, (64, 20_000))], False),
}
