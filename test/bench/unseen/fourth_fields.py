"""Functions of the fourth list, second part: losses, images, updates, physics, recurrences, geometry."""

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


def arc_margin(x: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    cosine = F.normalize(x) @ F.normalize(w).T
    sine = (1 - cosine**2).clamp(min=1e-6).sqrt()
    moved = cosine * math.cos(0.5) - sine * math.sin(0.5)
    hit = F.one_hot(labels, w.shape[0]).bool()
    return F.cross_entropy(torch.where(hit, moved, cosine) * 30, labels)


def tversky(logits: Tensor, labels: Tensor) -> Tensor:
    shares = torch.softmax(logits, 1)
    hot = F.one_hot(labels, logits.shape[1]).movedim(-1, 1).to(shares)
    both, missed, wrong = (t.sum((0, 2, 3)) for t in (shares * hot, (1 - shares) * hot, shares * (1 - hot)))
    return (1 - (both + 1) / (both + 0.7 * missed + 0.3 * wrong + 1)).pow(0.75).mean()


def list_likelihood(scores: Tensor, grades: Tensor) -> Tensor:
    ordered = scores.gather(1, grades.argsort(1, descending=True))
    return (ordered.flip(1).logcumsumexp(1).flip(1) - ordered).sum(1).mean()


def student_t(x: Tensor, scale: Tensor, freedom: Tensor) -> Tensor:
    f = F.softplus(freedom) + 2
    s = F.softplus(scale) + 1e-3
    constant = torch.lgamma((f + 1) / 2) - torch.lgamma(f / 2) - 0.5 * torch.log(f * math.pi) - s.log()
    return (((f + 1) / 2) * torch.log1p((x / s) ** 2 / f) - constant).mean()


def hsv(x: Tensor) -> Tensor:
    most, at = x.max(1)
    span = most - x.amin(1)
    r, g, b = x.unbind(1)
    safe = torch.where(span == 0, 1.0, span)
    hue = torch.where(at == 0, (g - b) / safe, torch.where(at == 1, (b - r) / safe + 2, (r - g) / safe + 4))
    return torch.stack([(hue / 6) % 1.0, span / most.clamp(min=1e-8), most], 1)


def grey_and_chroma(x: Tensor) -> Tensor:
    linear = torch.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
    grey = torch.einsum("nchw,c->nhw", linear, linear.new_tensor([0.2126, 0.7152, 0.0722]))
    colour = F.avg_pool2d(linear - grey[:, None], 2)
    return F.interpolate(colour, scale_factor=2, mode="nearest") + grey[:, None]


def morphology(x: Tensor) -> Tensor:
    opened = F.max_pool2d(-F.max_pool2d(-x, 3, 1, 1), 3, 1, 1)
    return (F.max_pool2d(x, 3, 1, 1) + F.max_pool2d(-x, 3, 1, 1)) + (x - opened)


def ssim(x: Tensor, y: Tensor) -> Tensor:
    mx, my = F.avg_pool2d(x, 7, 1), F.avg_pool2d(y, 7, 1)
    vx = F.avg_pool2d(x * x, 7, 1) - mx * mx
    vy = F.avg_pool2d(y * y, 7, 1) - my * my
    both = F.avg_pool2d(x * y, 7, 1) - mx * my
    top = (2 * mx * my + 1e-4) * (2 * both + 9e-4)
    return 1 - (top / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4))).mean()


def warped(x: Tensor, flow: Tensor) -> Tensor:
    h, w = x.shape[2:]
    y, z = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    grid = torch.stack([z, y], -1).to(x) + torch.tanh(flow.movedim(1, -1)) * 0.1
    return F.grid_sample(x, grid, padding_mode="border", align_corners=True)


def trilinear(x: Tensor, y: Tensor) -> Tensor:
    return F.relu(F.interpolate(x, scale_factor=2, mode="trilinear") + y)


def lion(p: Tensor, g: Tensor, m: Tensor) -> Tensor:
    update = torch.sign(m * 0.9 + g * 0.1)
    return torch.stack([p * (1 - 1e-4) - 1e-3 * update, m * 0.99 + g * 0.01])


def adafactor(p: Tensor, g: Tensor, row: Tensor, column: Tensor) -> Tensor:
    square = g * g + 1e-30
    row = row * 0.99 + square.mean(1) * 0.01
    column = column * 0.99 + square.mean(0) * 0.01
    step = g * (row / row.mean()).rsqrt()[:, None] * column.rsqrt()
    step = step / (step.pow(2).mean().sqrt()).clamp(min=1.0)
    return p - 1e-2 * step * p.pow(2).mean().sqrt().clamp(min=1e-3)


def reaction_diffusion(u: Tensor, v: Tensor) -> Tensor:
    def laplacian(t: Tensor) -> Tensor:
        near = t.roll(1, -1) + t.roll(-1, -1) + t.roll(1, -2) + t.roll(-1, -2)
        return near - 4 * t

    for _ in range(2):
        made = u * v * v
        u, v = u + 0.16 * laplacian(u) - made + 0.06 * (1 - u), v + 0.08 * laplacian(v) + made - 0.122 * v
    return torch.stack([u, v])


def wave(now: Tensor, before: Tensor, speed: Tensor) -> Tensor:
    inside = now[..., 1:-1, 1:-1]
    bend = now[..., 2:, 1:-1] + now[..., :-2, 1:-1] + now[..., 1:-1, 2:] + now[..., 1:-1, :-2] - 4 * inside
    return F.pad(2 * inside - before[..., 1:-1, 1:-1] + speed[1:-1, 1:-1] * bend, (1, 1, 1, 1))


def gravity(at: Tensor, mass: Tensor) -> Tensor:
    between = at[None] - at[:, None]
    square = (between**2).sum(-1) + 1e-2
    return (between * (mass * square**-1.5)[..., None]).sum(1)


def lstm_steps(x: Tensor, h: Tensor, c: Tensor, w: Tensor, u: Tensor) -> Tensor:
    made = []
    for step in (x @ w).unbind(1):
        i, f, g, o = (step + h @ u).chunk(4, -1)
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        made.append(h)
    return torch.stack(made, 1)


def selective_scan(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    dt = F.softplus(dt)
    state, made = x.new_zeros(x.shape[0], x.shape[2], a.shape[1]), []
    for t in range(x.shape[1]):
        decay = torch.exp(-dt[:, t, :, None] * a.exp())
        state = decay * state + (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
        made.append((state * c[:, t, None]).sum(-1))
    return torch.stack(made, 1)


def crf(emissions: Tensor, moves: Tensor) -> Tensor:
    alpha = emissions[:, 0]
    for t in range(1, emissions.shape[1]):
        alpha = torch.logsumexp(alpha[:, :, None] + moves, 1) + emissions[:, t]
    return torch.logsumexp(alpha, 1).mean()


def sinkhorn(cost: Tensor) -> Tensor:
    plan = -cost / 0.1
    for _ in range(4):
        plan = plan - plan.logsumexp(-1, keepdim=True)
        plan = plan - plan.logsumexp(-2, keepdim=True)
    return plan.exp()


def chamfer(x: Tensor, y: Tensor) -> Tensor:
    square = (x[:, :, None] - y[:, None]).pow(2).sum(-1)
    return square.min(2).values.mean() + square.min(1).values.mean()


def rotated_points(q: Tensor, points: Tensor) -> Tensor:
    w, x, y, z = F.normalize(q, dim=-1).unbind(-1)
    rows = [
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
        torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
        torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
    ]
    return (torch.stack(rows, -2) @ points[..., None])[..., 0]


def haversine(a: Tensor, b: Tensor) -> Tensor:
    d = (b - a) / 2
    h = d[..., 0].sin() ** 2 + a[..., 0].cos() * b[..., 0].cos() * d[..., 1].sin() ** 2
    return 2 * 6371 * torch.asin(h.clamp(0, 0.999).sqrt())


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "margin of angles": (
        arc_margin,
        lambda: [torch.randn(256, 128), torch.randn(1000, 128), torch.randint(0, 1000, (256,))],
        True,
    ),
    "tversky loss": (
        tversky,
        lambda: [torch.randn(8, 12, 64, 64), torch.randint(0, 12, (8, 64, 64))],
        True,
    ),
    "likelihood of a ranking": (list_likelihood, _of((512, 256), (512, 256)), True),
    "student's t": (student_t, _of((512, 256), (512, 256), (512, 256)), True),
    "hue, saturation, value": (hsv, _rand((8, 3, 192, 192)), False),
    "grey and chroma": (grey_and_chroma, _rand((8, 3, 192, 192)), True),
    "morphology": (morphology, _of((8, 16, 64, 64)), True),
    "structural similarity": (ssim, _rand((4, 3, 128, 128), (4, 3, 128, 128)), True),
    "warped by a flow": (warped, _of((4, 8, 96, 96), (4, 2, 96, 96)), True),
    "trilinear": (trilinear, _of((2, 16, 16, 16, 16), (2, 16, 32, 32, 32)), True),
    "lion": (lion, _of(*[(1024, 1024)] * 3), False),
    "adafactor": (
        adafactor,
        lambda: [torch.randn(1024, 1024), torch.randn(1024, 1024), torch.rand(1024), torch.rand(1024)],
        False,
    ),
    "reaction and diffusion": (reaction_diffusion, _rand((4, 256, 256), (4, 256, 256)), True),
    "wave": (wave, _of((8, 256, 256), (8, 256, 256), (256, 256)), True),
    "gravity": (gravity, lambda: [torch.randn(1000, 3), torch.rand(1000)], True),
    "steps of an LSTM": (lstm_steps, _of((64, 8, 128), (64, 128), (64, 128), (128, 512), (128, 512)), True),
    "selective scan": (
        selective_scan,
        _of((4, 16, 256), (4, 16, 256), (256, 16), (4, 16, 16), (4, 16, 16)),
        True,
    ),
    "conditional random field": (crf, _of((64, 12, 48), (48, 48)), True),
    "sinkhorn": (sinkhorn, _rand((16, 128, 128)), True),
    "chamfer distance": (chamfer, _of((4, 512, 3), (4, 512, 3)), True),
    "rotated points": (rotated_points, _of((50_000, 4), (50_000, 3)), True),
    "haversine": (haversine, _of((100_000, 2), (100_000, 2)), True),
}
"""Name: the function, its tensors, and whether it has gradients."""
