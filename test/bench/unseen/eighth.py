"""Functions of the eighth list, first part: sound, space, graphs, policies, shops, boxes, fields, markets."""

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


def _boxes(*shapes: tuple[int, ...]) -> Made:
    def made() -> list[Tensor]:
        corners = [torch.rand(*shape, 2) for shape in shapes]
        return [torch.cat([c, c + 0.1 + torch.rand_like(c)], -1) for c in corners]

    return made


def overlap_add(frames: Tensor, window: Tensor) -> Tensor:
    """A signal of windowed frames that overlap by a half, over the squared windows: [batch, n, size]."""
    hop = frames.shape[-1] // 2
    frames = frames * window
    first, second = frames[..., :hop], frames[..., hop:]
    signal = F.pad(first, (0, 0, 0, 1)) + F.pad(second, (0, 0, 1, 0))
    weight = F.pad(window[:hop] ** 2, (0, hop)) + F.pad(window[hop:] ** 2, (hop, 0))
    return (signal / (weight[:hop] + weight[hop:] + 1e-2)).flatten(1)


def cepstrum(power: Tensor, dct: Tensor) -> Tensor:
    """Liftered cepstral coefficients, normalised over an utterance: [batch, t, mels]."""
    made = torch.log(power.clamp(min=1e-5)) @ dct
    n = torch.arange(dct.shape[1], dtype=power.dtype)
    made = made * (1 + 11 * torch.sin(math.pi * n / 22))
    return (made - made.mean(1, keepdim=True)) / (made.std(1, keepdim=True) + 1e-5)


def pcen(energy: Tensor) -> Tensor:
    """Energies normalised by channel: a smoothed level over time, a gain, a root: [batch, mels, 24 steps]."""
    level, levels = energy[..., 0], []
    for n in range(energy.shape[-1]):
        level = 0.96 * level + 0.04 * energy[..., n]
        levels.append(level)
    smooth = (torch.stack(levels, -1) + 1e-6) ** 0.98
    return (energy / smooth + 2.0) ** 0.5 - 2.0**0.5


def masked_bands(spectrum: Tensor, at: Tensor, width: Tensor) -> Tensor:
    """Two bands of time and of frequency set to the mean, others for each example: [batch, mels, t]."""
    mean = spectrum.mean((1, 2), keepdim=True)
    for dim, n in ((1, 0), (1, 1), (2, 2), (2, 3)):
        place = torch.arange(spectrum.shape[dim])
        inside = (place >= at[:, n, None]) & (place < (at[:, n] + width[:, n])[:, None])
        spectrum = torch.where(inside.unsqueeze(3 - dim), mean, spectrum)
    return spectrum


def six_numbers(x: Tensor, points: Tensor) -> Tensor:
    """Rotations of six numbers by Gram and Schmidt, applied to points: [n, 6] and [n, 8, 3]."""
    first = F.normalize(x[:, :3], dim=-1)
    second = x[:, 3:] - (first * x[:, 3:]).sum(-1, keepdim=True) * first
    second = F.normalize(second, dim=-1)
    third = torch.linalg.cross(first, second, dim=-1)
    return torch.einsum("nij,nkj->nki", torch.stack([first, second, third], -2), points)


def lens(points: Tensor, camera: Tensor) -> Tensor:
    """Pixels of points through a camera whose lens distorts: [n, 3]."""
    x, y = points[..., 0] / (points[..., 2].abs() + 1), points[..., 1] / (points[..., 2].abs() + 1)
    r2 = x * x + y * y
    radial = 1 + r2 * (camera[4] + r2 * (camera[5] + r2 * camera[6]))
    u = x * radial + 2 * camera[7] * x * y + camera[8] * (r2 + 2 * x * x)
    v = y * radial + camera[7] * (r2 + 2 * y * y) + 2 * camera[8] * x * y
    return torch.stack([camera[0] * u + camera[2], camera[1] * v + camera[3]], -1)


def joined_solids(p: Tensor, at: Tensor, size: Tensor) -> Tensor:
    """Distance to eight boxes with round edges, joined smoothly: points [n, 3]."""
    q = (p[:, None] - at).abs() - size.abs()
    each = q.clamp(min=0).norm(dim=-1) + q.amax(-1).clamp(max=0) - 0.05
    return -0.1 * torch.logsumexp(each / -0.1, -1)


def fused_depth(field: Tensor, weight: Tensor, depth: Tensor, z: Tensor) -> Tensor:
    """A truncated distance field with one more image of depths in it: [64, h, w]."""
    apart = (depth - z[:, None, None] * 4) / 0.2
    seen = (apart > -1) & (depth > 0.05)
    more = (field * weight + apart.clamp(max=1)) / (weight + 1)
    return torch.stack([torch.where(seen, more, field), torch.where(seen, weight + 1, weight)])


def edge_conv(x: Tensor, w: Tensor, near: Tensor) -> Tensor:
    """The largest of a layer over the eight neighbours of each point: [points, width]."""
    other = x[near]
    mine = x[:, None].expand_as(other)
    return F.leaky_relu(torch.cat([mine, other - mine], -1) @ w, 0.2).amax(1)


def gated_messages(x: Tensor, edge: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Messages under gates of their edges, over the sum of gates at each node."""
    gate = torch.sigmoid(edge + x[source] + x[target])
    total = torch.zeros_like(x).index_add(0, target, gate * x[source])
    share = torch.zeros_like(x).index_add(0, target, gate)
    return x + F.relu(total / (share + 1e-4))


def smeared(x: Tensor, length: Tensor, w: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Continuous filters of atoms' distances with a cosine cut-off, summed at each atom."""
    centres = torch.linspace(0, 5, 20, dtype=length.dtype)
    bumps = torch.exp(-8 * (5 * length[:, None] - centres) ** 2)
    cut = 0.5 * (torch.cos(math.pi * length) + 1) * (length < 1.0)
    filters = (F.softplus(bumps @ w) - math.log(2)) * cut[:, None]
    return torch.zeros_like(x).index_add(0, target, x[source] * filters)


def v_trace(value: Tensor, reward: Tensor, ratio: Tensor) -> Tensor:
    """Targets of values off policy, with clipped ratios, step by step from the end: [20, actors]."""
    rho, c = ratio.exp().clamp(max=1.0), 0.95 * ratio.exp().clamp(max=1.0)
    after = torch.cat([value[1:], value[-1:]])
    delta = rho * (reward + 0.99 * after - value)
    total, made = torch.zeros_like(value[0]), []
    for n in reversed(range(value.shape[0])):
        total = delta[n] + 0.99 * c[n] * total
        made.append(value[n] + total)
    return torch.stack(made[::-1])


def actor_critic(logits: Tensor, value: Tensor, old: Tensor, target: Tensor, action: Tensor) -> Tensor:
    """The loss of an actor and a clipped critic, less the entropy: [steps, actions]."""
    chance = F.log_softmax(logits, -1)
    entropy = -(chance.exp() * chance).sum(-1)
    clipped = old + (value - old).clamp(-0.2, 0.2)
    critic = torch.max((value - target) ** 2, (clipped - target) ** 2)
    gain = (target - value).detach()
    return (-gain * chance.gather(-1, action[:, None])[:, 0] + 0.5 * critic - 0.01 * entropy).mean()


def group_policy(new: Tensor, old: Tensor, base: Tensor, reward: Tensor, length: Tensor) -> Tensor:
    """Policy loss relative to a group of answers, with a penalty of divergence: [groups, answers, tokens]."""
    gain = (reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)
    ratio = torch.exp(0.1 * (new - old))
    worst = torch.minimum(ratio * gain[..., None], ratio.clamp(0.8, 1.2) * gain[..., None])
    apart = 0.1 * (base - new)
    mask = torch.arange(new.shape[-1]) < length[..., None]
    each = torch.where(mask, worst - 0.04 * (apart.exp() - apart - 1), 0.0)
    return -(each.sum(-1) / length).mean()


def dot_pairs(dense: Tensor, sparse: Tensor) -> Tensor:
    """Products of all pairs of embeddings, behind the dense features: [batch, fields, width]."""
    x = torch.cat([dense[:, None], sparse], 1)
    products = torch.bmm(x, x.transpose(1, 2))
    row, column = torch.tril_indices(x.shape[1], x.shape[1], -1)
    return torch.cat([dense, products[:, row, column]], 1)


def interest(item: Tensor, past: Tensor, w: Tensor, v: Tensor, length: Tensor) -> Tensor:
    """Attention of an item to what a user bought: [batch, width] and [batch, past, width]."""
    query = item[:, None].expand_as(past)
    joined = torch.cat([query, past, query - past, query * past], -1)
    score = (torch.sigmoid(joined @ w) @ v).squeeze(-1)
    score = score.masked_fill(torch.arange(past.shape[1]) >= length[:, None], -1e4)
    return (torch.softmax(score / past.shape[-1] ** 0.5, -1)[..., None] * past).sum(1)


def crossed(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Three crossing layers of full matrices."""
    first = x
    for n in range(3):
        x = first * (x @ w[n] + b[n]) + x
    return x


def complete_overlap(a: Tensor, b: Tensor) -> Tensor:
    """One less the overlap of boxes, with penalties of centres' distance and of aspect: [n, 4]."""
    (ax, ay, ar, ab), (bx, by, br, bb) = a.unbind(-1), b.unbind(-1)
    w = (torch.min(ar, br) - torch.max(ax, bx)).clamp(min=0)
    h = (torch.min(ab, bb) - torch.max(ay, by)).clamp(min=0)
    wa, ha, wb, hb = ar - ax, ab - ay, br - bx, bb - by
    share = w * h / (wa * ha + wb * hb - w * h + 1e-7)
    across = (torch.max(ar, br) - torch.min(ax, bx)) ** 2 + (torch.max(ab, bb) - torch.min(ay, by)) ** 2
    apart = ((ax + ar - bx - br) ** 2 + (ay + ab - by - bb) ** 2) / 4
    aspect = 4 / math.pi**2 * (torch.atan(wb / hb) - torch.atan(wa / ha)) ** 2
    with torch.no_grad():
        alpha = aspect / (1 - share + aspect + 1e-7)
    return 1 - share + apart / across + alpha * aspect


def matching_cost(logits: Tensor, boxes: Tensor, wanted: Tensor, label: Tensor) -> Tensor:
    """Costs of matching queries and objects: focal classes, distances, overlaps: [queries, objects]."""
    p = torch.sigmoid(logits)
    no = 0.75 * p**2 * -(1 - p + 1e-8).log()
    yes = 0.25 * (1 - p) ** 2 * -(p + 1e-8).log()
    near = (yes - no)[:, label]
    apart = (boxes[:, None] - wanted).abs().sum(-1)
    size = (
        torch.min(boxes[:, None, 2:], wanted[:, 2:]) - torch.max(boxes[:, None, :2], wanted[:, :2])
    ).clamp(0)
    inner = size.prod(-1)
    area, other = (boxes[:, 2:] - boxes[:, :2]).prod(-1), (wanted[:, 2:] - wanted[:, :2]).prod(-1)
    return 2 * near + 5 * apart - 2 * inner / (area[:, None] + other - inner)


def peaks(heat: Tensor) -> Tensor:
    """Scores of a map at its local maxima: [batch, classes, h, w]."""
    score = torch.sigmoid(heat).clamp(1e-4, 1 - 1e-4)
    return score * (F.max_pool2d(score, 3, 1, 1) == score).to(score.dtype)


def box_of_bins(x: Tensor, anchor: Tensor, stride: Tensor) -> Tensor:
    """Boxes as expectations over sixteen bins of each side: [batch, 64, anchors]."""
    bins = torch.arange(16, dtype=x.dtype)
    side = x.unflatten(1, (4, 16)).transpose(1, 2).softmax(1)
    left_top, right_bottom = torch.einsum("bkfa,k->bfa", side, bins).chunk(2, 1)
    low, high = anchor - left_top, anchor + right_bottom
    return torch.cat([(low + high) / 2, high - low], 1) * stride


def yee(ez: Tensor, hx: Tensor, hy: Tensor, loss: Tensor) -> Tensor:
    """Two steps of Maxwell's equations on a staggered grid."""
    for _ in range(2):
        hx = hx - 0.5 * (ez[:, :, 1:] - ez[:, :, :-1])
        hy = hy + 0.5 * (ez[:, 1:] - ez[:, :-1])
        curl = hy[:, 1:, 1:-1] - hy[:, :-1, 1:-1] - hx[:, 1:-1, 1:] + hx[:, 1:-1, :-1]
        ez = F.pad((1 - 0.1 * loss) * ez[:, 1:-1, 1:-1] + 0.5 * curl, (1, 1, 1, 1))
    return ez


def unmixing(u: Tensor) -> Tensor:
    """A step of Cahn and Hilliard's equation on a torus."""

    def laplacian(t: Tensor) -> Tensor:
        return sum((torch.roll(t, s, d) for s in (1, -1) for d in (1, 2)), -4 * t)

    return u + 0.01 * laplacian(u**3 - u - 0.5 * laplacian(u))


def particle_density(at: Tensor, mass: Tensor) -> Tensor:
    """Densities and pressures of particles by a cubic spline kernel: [particles, 3]."""
    q = torch.sqrt(((at[:, None] - at) ** 2).sum(-1) + 1e-6)
    near = 1 - 1.5 * q**2 + 0.75 * q**3
    kernel = torch.where(q < 1, near, torch.where(q < 2, 0.25 * (2 - q) ** 3, torch.zeros_like(q)))
    density = (kernel / math.pi) @ mass
    return ((density + 0.1) / 2) ** 1.4 - 1


def relative_strength(price: Tensor) -> Tensor:
    """Relative strength over windows of fourteen days: [assets, days]."""
    change = price[:, 1:] - price[:, :-1]
    up, down = change.clamp(min=0), (-change).clamp(min=0)
    up, down = up.unfold(-1, 14, 1).mean(-1), down.unfold(-1, 14, 1).mean(-1)
    return 100 - 100 / (1 + up / (down + 1e-3))


def sharpe(score: Tensor, gain: Tensor) -> Tensor:
    """Mean over deviation of a portfolio's gains, less costs of trade: [batch, days, assets]."""
    weight = torch.softmax(score, -1)
    cost = 0.001 * (weight[:, 1:] - weight[:, :-1]).abs().sum(-1)
    made = (weight * gain).sum(-1) - F.pad(cost, (1, 0))
    return -(made.mean(-1) / (made.std(-1) + 1e-3)) * math.sqrt(252)


def heston(first: Tensor, second: Tensor) -> Tensor:
    """Pay of calls on paths whose variance is random, too: [12 steps, paths]."""
    price, variance = torch.zeros_like(first[0]), torch.full_like(first[0], 0.04)
    for n in range(first.shape[0]):
        root = torch.sqrt(variance.clamp(min=1e-6) / 12)
        price = price - variance.clamp(min=0) / 24 + root * first[n]
        both = -0.7 * first[n] + math.sqrt(1 - 0.49) * second[n]
        variance = variance + 2 * (0.04 - variance.clamp(min=0)) / 12 + 0.3 * root * both
    return (price.exp() - 1).clamp(min=0)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "overlap and add": (overlap_add, _of((16, 200, 512), (512,)), True),
    "cepstrum": (cepstrum, lambda: [torch.rand(32, 400, 80), torch.randn(80, 20)], True),
    "channel energies": (pcen, _rand((64, 128, 24)), True),
    "masked bands": (
        masked_bands,
        lambda: [torch.randn(32, 80, 400), torch.randint(60, (32, 4)), torch.randint(20, (32, 4))],
        True,
    ),
    "six numbers": (six_numbers, _of((10_000, 6), (10_000, 8, 3)), True),
    "lens": (lens, _of((200_000, 3), (9,)), True),
    "joined solids": (joined_solids, _of((20_000, 3), (8, 3), (8, 3)), True),
    "fused depth": (
        fused_depth,
        lambda: [
            torch.randn(64, 120, 120),
            torch.rand(64, 120, 120),
            4 * torch.rand(120, 120),
            torch.rand(64),
        ],
        True,
    ),
    "edge convolution": (
        edge_conv,
        lambda: [torch.randn(4000, 32), torch.randn(64, 64), torch.randint(4000, (4000, 8))],
        True,
    ),
    "gated messages": (
        gated_messages,
        lambda: [torch.randn(4000, 32), torch.randn(24_000, 32), *torch.randint(4000, (2, 24_000))],
        True,
    ),
    "smeared distances": (
        smeared,
        lambda: [
            torch.randn(2000, 32),
            torch.rand(16_000),
            torch.randn(20, 32),
            *torch.randint(2000, (2, 16_000)),
        ],
        True,
    ),
    "v-trace": (v_trace, _of(*[(20, 20_000)] * 3), True),
    "actor and critic": (
        actor_critic,
        lambda: [torch.randn(40_000, 18), *torch.randn(3, 40_000), torch.randint(18, (40_000,))],
        True,
    ),
    "group policy": (
        group_policy,
        lambda: [*torch.randn(3, 32, 16, 512), torch.randn(32, 16), torch.randint(1, 512, (32, 16))],
        True,
    ),
    "dots of pairs": (dot_pairs, _of((1024, 32), (1024, 26, 32)), True),
    "interest": (
        interest,
        lambda: [*_of((256, 32), (256, 50, 32), (128, 36), (36, 1))(), torch.randint(1, 50, (256,))],
        True,
    ),
    "crossed layers": (crossed, lambda: [torch.randn(1024, 256), *_of((3, 256, 256), (3, 256))()], True),
    "complete overlap": (complete_overlap, _boxes((100_000,), (100_000,)), True),
    "matching cost": (
        matching_cost,
        lambda: [torch.randn(900, 80), *_boxes((900,), (200,))(), torch.randint(80, (200,))],
        True,
    ),
    "peaks": (peaks, _of((4, 40, 96, 96)), True),
    "boxes of bins": (box_of_bins, lambda: [torch.randn(8, 64, 2100), *_rand((2, 2100), (2100,))()], True),
    "staggered grid": (yee, _of((8, 200, 200), (8, 200, 199), (8, 199, 200), (8, 198, 198)), True),
    "unmixing": (unmixing, _of((8, 200, 200)), True),
    "particle density": (particle_density, lambda: [4 * torch.rand(800, 3), torch.rand(800)], True),
    "relative strength": (relative_strength, _of((400, 1000)), True),
    "sharpe": (sharpe, _of((64, 250, 50), (64, 250, 50)), True),
    "heston": (heston, _of((12, 50_000), (12, 50_000)), True),
}
