"""Functions of the tenth list: geometry, reinforcement learning, graphs, detection."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def _boxes(*shape: int) -> Tensor:
    low = torch.rand(*shape, 2)
    return torch.cat([low, low + 0.05 + torch.rand(*shape, 2) * 0.3], -1)


def cotangents(vertex: Tensor, face: Tensor, value: Tensor) -> Tensor:
    """Cotangent Laplacian of values at a mesh's vertices: [n, 3], [faces, 3], [n, k]."""
    a, b, c = (vertex[face[:, k]] for k in range(3))
    made = torch.zeros_like(value)
    for p, q, r, i, j in ((a, b, c, 1, 2), (b, c, a, 2, 0), (c, a, b, 0, 1)):
        u, v = q - p, r - p
        w = (u * v).sum(-1) / (torch.linalg.cross(u, v).norm(dim=-1) + 1e-3)
        flow = w[:, None] * (value[face[:, j]] - value[face[:, i]])
        made = made.index_add(0, face[:, i], flow).index_add(0, face[:, j], -flow)
    return made


def point_to_plane(p: Tensor, q: Tensor, n: Tensor) -> Tensor:
    """Normal equations of aligning points with planes: [points, 3]."""
    rows = torch.cat([torch.linalg.cross(p, n), n], -1)
    off = ((q - p) * n).sum(-1, keepdim=True)
    weight = 1 / (1 + off.square())
    return rows.T @ torch.cat([rows * weight, off * weight], -1)


def first_triangles(origin: Tensor, way: Tensor, corner: Tensor) -> Tensor:
    """How far each ray flies to the first of all triangles: [rays, 3], [triangles, 3, 3]."""
    a, b, c = corner.unbind(1)
    u, v = b - a, c - a
    h = torch.linalg.cross(way[:, None].expand(-1, len(a), 3), v.expand(len(way), -1, 3))
    det = (u * h).sum(-1)
    s = origin[:, None] - a
    x = (s * h).sum(-1) / det
    q = torch.linalg.cross(s, u.expand_as(s))
    y, t = (way[:, None] * q).sum(-1) / det, (v * q).sum(-1) / det
    hit = (x >= 0) & (y >= 0) & (x + y <= 1) & (t > 1e-4)
    return torch.where(hit, t, 100.0).amin(-1)


def bounding_spheres(x: Tensor) -> Tensor:
    """Clouds of points in their unit spheres: [clouds, points, 3]."""
    off = x - x.mean(1, keepdim=True)
    return off / off.norm(dim=-1, keepdim=True).amax(1, keepdim=True)


def smooth_union(point: Tensor, centre: Tensor, size: Tensor) -> Tensor:
    """Distances to a smooth union of boxes: [points, 3], [boxes, 3]."""
    q = (point[:, None] - centre).abs() - size
    far = q.clamp(min=0).norm(dim=-1) + q.amax(-1).clamp(max=0)
    return -torch.logsumexp(-8 * far, -1) / 8


def interpolated(value: Tensor, face: Tensor, at: Tensor, weight: Tensor) -> Tensor:
    """Values of vertices at pixels: [n, k], [faces, 3], [pixels], [pixels, 3]."""
    return (value[face[at]] * weight[..., None]).sum(1)


def voxel_means(point: Tensor, feature: Tensor) -> Tensor:
    """Features of points averaged over the cells of a grid: [n, 3], [n, k]."""
    cell = (point * 16).long().clamp(0, 15)
    at = (cell[:, 0] * 16 + cell[:, 1]) * 16 + cell[:, 2]
    one = torch.zeros(4096, feature.shape[1], dtype=feature.dtype).index_add(0, at, feature)
    count = torch.zeros_like(one[:, 0]).index_add(0, at, torch.ones_like(point[:, 0]))
    return one / count.clamp(min=1)[:, None]


def to_go(reward: Tensor, going: Tensor) -> Tensor:
    """Sums of all later rewards, normed over the batch: [time, environments]."""
    later = (reward * going).flip(0).cumsum(0).flip(0)
    return (later - later.mean()) / (later.std() + 1e-6)


def projected_returns(reward: Tensor, going: Tensor, chance: Tensor) -> Tensor:
    """Categorical targets: chances of shifted atoms divided among their neighbours: [n, 51]."""
    atom = torch.linspace(-10, 10, 51)
    at = ((reward[:, None] + 0.99 * going[:, None] * atom).clamp(-10, 10) + 10) / 0.4
    low = at.floor().clamp(0, 49)
    high = at - low
    made = torch.zeros_like(chance).scatter_add(1, low.long(), chance * (1 - high))
    return made.scatter_add(1, low.long() + 1, chance * high)


def munchausen(now: Tensor, later: Tensor, action: Tensor, reward: Tensor) -> Tensor:
    """Targets with the log policy of the action taken: [n, actions]."""
    log = F.log_softmax(now / 0.03, -1) * 0.03
    taken = log.gather(1, action[:, None])[:, 0].clamp(-1, 0)
    p = F.softmax(later / 0.03, -1)
    soft = (p * (later - F.log_softmax(later / 0.03, -1) * 0.03)).sum(-1)
    return reward + 0.9 * taken + 0.99 * soft


def expectile(q: Tensor, v: Tensor, log: Tensor) -> Tensor:
    """Losses of implicit Q-learning: an expectile, and a policy weighted by advantages."""
    off = q - v
    value = torch.where(off > 0, 0.7, 0.3) * off * off
    return value.mean() - (torch.exp(3 * off.detach()).clamp(max=100) * log).mean()


def two_hot(x: Tensor, y: Tensor) -> Tensor:
    """Cross entropy with symlog targets divided among two of 255 bins: [n, 255] and [n]."""
    bins = torch.linspace(-20, 20, 255)
    to = torch.sign(y) * torch.log1p(y.abs())
    share = F.relu(1 - (to[:, None] - bins).abs() / (40 / 254))
    return -(share * F.log_softmax(x, -1)).sum(-1).mean()


def whitened(x: Tensor, valid: Tensor) -> Tensor:
    """Advantages normed over valid steps: [batch, time]."""
    count = valid.sum()
    mean = (x * valid).sum() / count
    spread = ((x - mean).square() * valid).sum() / count
    return (x - mean) * torch.rsqrt(spread + 1e-8) * valid


def mean_of_neighbours(x: Tensor, w: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """A layer over nodes beside the mean of their neighbours: [n, k], [2 k, m]."""
    one = torch.zeros_like(x).index_add(0, target, x[source])
    count = torch.zeros(len(x)).index_add(0, target, torch.ones(len(target)))
    made = torch.cat([x, one / count.clamp(min=1)[:, None]], -1) @ w
    return F.normalize(F.relu(made), dim=-1)


def principal_neighbours(x: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Mean, deviation and maximum over neighbours, scaled by degrees: [n, k]."""
    sent, zero = x[source], torch.zeros_like(x)
    count = torch.zeros(len(x), 1).index_add(0, target, torch.ones(len(target), 1)).clamp(min=1)
    mean = zero.index_add(0, target, sent) / count
    square = zero.index_add(0, target, sent * sent) / count
    most = zero.index_reduce(0, target, sent, "amax", include_self=False)
    scale = torch.log1p(count)
    return torch.cat([mean, (square - mean * mean).clamp(min=1e-5).sqrt(), most * scale], -1)


def label_steps(y: Tensor, source: Tensor, target: Tensor, w: Tensor) -> Tensor:
    """Three steps of labels along weighted edges: [n, classes]."""
    made = y
    for _ in range(3):
        made = (0.9 * torch.zeros_like(y).index_add(0, target, made[source] * w[:, None]) + 0.1 * y).clamp(
            0, 1
        )
    return made


def readout(x: Tensor, gate: Tensor, graph: Tensor) -> Tensor:
    """Gated sums of nodes by graph beside means: [n, k], [n], [n]."""
    soft = torch.sigmoid(gate)[:, None] * torch.tanh(x)
    one = torch.zeros(128, x.shape[1], dtype=x.dtype).index_add(0, graph, soft)
    two = torch.zeros(128, x.shape[1], dtype=x.dtype).index_add(0, graph, x)
    count = torch.zeros(128).index_add(0, graph, torch.ones(len(x)))
    return torch.cat([one, two / count.clamp(min=1)[:, None]], -1)


def filtered_messages(position: Tensor, x: Tensor, w: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Messages filtered by radial functions of distances: [n, 3], [n, k], [20, k]."""
    r = (position[source] - position[target]).norm(dim=-1, keepdim=True)
    radial = torch.exp(-10 * (r - torch.linspace(0, 3, 20)) ** 2)
    reach = 0.5 * (torch.cos(r * 1.047) + 1) * (r < 3)
    return torch.zeros_like(x).index_add(0, target, x[source] * (radial @ w) * reach)


def turned_entities(entity: Tensor, relation: Tensor, head: Tensor, kind: Tensor, tail: Tensor) -> Tensor:
    """Scores of triples: heads turned by relations, less tails: [n, 2 k], [kinds, k]."""
    (a, b), (c, d) = entity[head].chunk(2, -1), entity[tail].chunk(2, -1)
    turn = relation[kind]
    x = a * torch.cos(turn) - b * torch.sin(turn) - c
    y = a * torch.sin(turn) + b * torch.cos(turn) - d
    return 12 - (x * x + y * y + 1e-6).sqrt().sum(-1)


def grid_boxes(x: Tensor, anchor: Tensor) -> Tensor:
    """Boxes and scores of a grid's anchors: [batch, 3 * 25, h, w]."""
    b, _, h, w = x.shape
    y = x.view(b, 3, 25, h, w).permute(0, 1, 3, 4, 2).sigmoid()
    grid = torch.stack(torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")[::-1], -1)
    place = (y[..., :2] * 2 - 0.5 + grid) * 8
    size = (y[..., 2:4] * 2) ** 2 * anchor[:, None, None]
    return torch.cat([place, size, y[..., 4:]], -1).flatten(1, 3)


def varifocal(x: Tensor, quality: Tensor) -> Tensor:
    """Loss of scores that aim at the overlap of boxes: [n, classes]."""
    p = torch.sigmoid(x)
    weight = torch.where(quality > 0, quality, 0.75 * p.detach() ** 2)
    return (F.binary_cross_entropy_with_logits(x, quality, reduction="none") * weight).sum() / len(x)


def loss_of_bins(x: Tensor, side: Tensor) -> Tensor:
    """Cross entropy of the two bins next to each side of a box: [n, 4, 17] and [n, 4]."""
    low = side.long().clamp(max=15)
    log = F.log_softmax(x, -1)
    left, right = (log.gather(-1, k[..., None])[..., 0] for k in (low, low + 1))
    return -(left * (low + 1 - side) + right * (side - low)).mean()


def matrix_suppressed(box: Tensor, score: Tensor) -> Tensor:
    """Scores that decay by the overlaps with better boxes: [batch, n, 4], sorted."""
    a, b = box[:, :, None], box[:, None]
    size = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    both = size[..., 0] * size[..., 1]
    area = (box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1])
    iou = (both / (area[:, :, None] + area[:, None] - both)).triu(1)
    most = iou.amax(1)
    return score * torch.exp(2 * (most[:, :, None] ** 2 - iou**2)).amin(1)


def heat_maps(centre: Tensor, radius: Tensor, kind: Tensor) -> Tensor:
    """Gaussian targets of objects' centres, the largest where they overlap: [batch, objects, 2]."""
    n = torch.arange(64)
    x = torch.exp(-((n - centre[..., :1] * 64) ** 2) / radius[..., None])
    y = torch.exp(-((n - centre[..., 1:] * 64) ** 2) / radius[..., None])
    own = F.one_hot(kind, 8).to(x.dtype)
    return (y[..., :, None] * x[..., None, :] * own[..., None, None].amax(2)).amax(1)


def key_points(found: Tensor, true: Tensor, seen: Tensor, area: Tensor) -> Tensor:
    """Similarity of poses: [n, 17, 2], [n, 17], [n]."""
    spread = torch.linspace(0.05, 0.2, 17) ** 2
    off = (found - true).square().sum(-1)
    made = torch.exp(-off / (2 * spread * area[:, None] + 1e-6)) * seen
    return made.sum(-1) / seen.sum(-1).clamp(min=1)


def _edges(nodes: int, edges: int) -> list[Tensor]:
    return list(torch.randint(nodes, (2, edges)))


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "cotangents": (
        cotangents,
        lambda: [torch.randn(5000, 3), torch.randint(5000, (10_000, 3)), torch.randn(5000, 8)],
        True,
    ),
    "point to plane": (point_to_plane, _of(*[(60_000, 3)] * 3), True),
    "first triangles": (first_triangles, _of((800, 3), (800, 3), (200, 3, 3)), True),
    "bounding spheres": (bounding_spheres, _of((64, 2000, 3)), True),
    "smooth union": (smooth_union, lambda: [*_of((8000, 3), (24, 3))(), torch.rand(24, 3)], True),
    "interpolated": (
        interpolated,
        lambda: [
            torch.randn(4000, 16),
            torch.randint(4000, (8000, 3)),
            torch.randint(8000, (40_000,)),
            torch.rand(40_000, 3),
        ],
        True,
    ),
    "means of voxels": (voxel_means, lambda: [torch.rand(40_000, 3), torch.randn(40_000, 24)], True),
    "to go": (to_go, lambda: [torch.randn(400, 1000), (torch.rand(400, 1000) < 0.9).float()], True),
    "projected returns": (
        projected_returns,
        lambda: [torch.randn(4096), torch.ones(4096), torch.softmax(torch.randn(4096, 51), -1)],
        False,
    ),
    "Munchausen": (
        munchausen,
        lambda: [*_of((20_000, 18), (20_000, 18))(), torch.randint(18, (20_000,)), torch.randn(20_000)],
        True,
    ),
    "expectile": (expectile, _of(*[(300_000,)] * 3), True),
    "two hot": (two_hot, lambda: [torch.randn(2048, 255), torch.randn(2048) * 50], True),
    "whitened": (whitened, lambda: [torch.randn(512, 900), (torch.rand(512, 900) < 0.8).float()], True),
    "mean of neighbours": (
        mean_of_neighbours,
        lambda: [*_of((4000, 48), (96, 64))(), *_edges(4000, 24_000)],
        True,
    ),
    "principal neighbours": (
        principal_neighbours,
        lambda: [torch.randn(3000, 40), *_edges(3000, 12_000)],
        False,
    ),
    "steps of labels": (
        label_steps,
        lambda: [torch.rand(6000, 12), *_edges(6000, 30_000), torch.rand(30_000) / 5],
        True,
    ),
    "readout": (readout, lambda: [*_of((20_000, 48), (20_000,))(), torch.randint(128, (20_000,))], True),
    "filtered messages": (
        filtered_messages,
        lambda: [torch.rand(2000, 3) * 3, torch.randn(2000, 64), torch.randn(20, 64), *_edges(2000, 12_000)],
        True,
    ),
    "turned entities": (
        turned_entities,
        lambda: [
            *_of((5000, 128), (40, 64))(),
            torch.randint(5000, (6000,)),
            torch.randint(40, (6000,)),
            torch.randint(5000, (6000,)),
        ],
        True,
    ),
    "boxes of a grid": (grid_boxes, lambda: [torch.randn(8, 75, 40, 40), torch.rand(3, 2) * 50], True),
    "varifocal": (
        varifocal,
        lambda: [torch.randn(8000, 80), F.relu(torch.rand(8000, 80) - 0.9) * 10],
        True,
    ),
    "loss of bins": (loss_of_bins, lambda: [torch.randn(6000, 4, 17), torch.rand(6000, 4) * 15.9], True),
    "matrix suppressed": (
        matrix_suppressed,
        lambda: [_boxes(4, 300), torch.rand(4, 300).sort(-1, descending=True).values],
        True,
    ),
    "heat maps": (
        heat_maps,
        lambda: [torch.rand(8, 20, 2), torch.rand(8, 20) * 20 + 2, torch.randint(8, (8, 20))],
        False,
    ),
    "key points": (
        key_points,
        lambda: [
            torch.rand(20_000, 17, 2),
            torch.rand(20_000, 17, 2),
            torch.ones(20_000, 17),
            torch.rand(20_000),
        ],
        True,
    ),
}
