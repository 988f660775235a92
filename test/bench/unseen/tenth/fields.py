"""Functions of the tenth list: few bits, tokens, ranking, pictures, statistics."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Made = Callable[[], list[Tensor]]


def _of(*shapes: tuple[int, ...]) -> Made:
    return lambda: [torch.randn(shape) for shape in shapes]


def _bytes(*shape: int) -> Tensor:
    return torch.randint(256, shape, dtype=torch.uint8)


def normal_floats(code: Tensor, scale: Tensor, table: Tensor) -> Tensor:
    """Weights of four bits from a table of 16 values and scales of blocks: [rows, n / 2] bytes."""
    both = torch.stack([code >> 4, code & 15], -1).flatten(-2).long()
    return (table[both].unflatten(-1, (-1, 64)) * scale[..., None]).flatten(-2)


def hadamard(x: Tensor) -> Tensor:
    """Rows turned by a Hadamard matrix of 128, rounded to signed bytes and back."""
    y = x
    for _ in range(7):
        a, b = y.unflatten(-1, (-1, 2)).unbind(-1)
        y = torch.cat([a + b, a - b], -1)
    y = y / math.sqrt(128)
    scale = y.abs().amax(-1, keepdim=True) / 127
    return torch.round(y / scale).clamp(-127, 127) * scale


def moved_scales(x: Tensor, w: Tensor) -> Tensor:
    """Activations over scales that balance them with their weights, as bytes: [n, k] and [m, k]."""
    scale = x.abs().amax(0).clamp(min=1e-5).sqrt() / w.abs().amax(0).clamp(min=1e-5).sqrt()
    y = x / scale
    step = y.abs().amax() / 127
    return torch.round(y / step).to(torch.int8)


def powers_of_two(x: Tensor) -> Tensor:
    """Values rounded to signed powers of two of four bits, gradients straight through."""
    power = torch.round(torch.log2(x.abs() + 1e-6)).clamp(-6, 1)
    made = torch.sign(x) * torch.exp2(power)
    return x + (made - x).detach()


def group_affine(x: Tensor) -> Tensor:
    """Groups of 32 weights as codes of three bits with scale and zero, and back: [rows, n]."""
    y = x.unflatten(-1, (-1, 32))
    low, high = y.amin(-1, keepdim=True), y.amax(-1, keepdim=True)
    scale = (high - low).clamp(min=1e-6) / 7
    zero = torch.round(-low / scale)
    code = (torch.round(y / scale) + zero).clamp(0, 7)
    return ((code - zero) * scale).flatten(-2)


def code_points(text: Tensor) -> Tensor:
    """Which character of a text each byte belongs to, and whether a word begins: [texts, bytes]."""
    first = (text & 0xC0) != 0x80
    letter = ((text >= 65) & (text <= 90)) | ((text >= 97) & (text <= 122)) | (text >= 128)
    word = letter & ~F.pad(letter[:, :-1], (1, 0))
    return first.long().cumsum(-1) * 2 + word


def since_event(happened: Tensor) -> Tensor:
    """Steps since the last event of each row: [rows, time]."""
    t = torch.arange(happened.shape[-1])
    last = torch.where(happened, t, -1).cummax(-1).values
    return torch.where(last >= 0, t - last, t + 1)


def packed_positions(document: Tensor) -> Tensor:
    """Positions of tokens within their documents: [batch, time] of document numbers, sorted."""
    t = torch.arange(document.shape[-1])
    new = F.pad(document[:, 1:] != document[:, :-1], (1, 0), value=True)
    return t - torch.where(new, t, 0).cummax(-1).values


def least_share(x: Tensor, heat: Tensor) -> Tensor:
    """Log chances of tokens with a twentieth of the best one's chance: [batch, vocabulary]."""
    p = torch.softmax(x / heat[:, None], -1)
    kept = p >= 0.05 * p.amax(-1, keepdim=True)
    return torch.log_softmax(x.masked_fill(~kept, -1e9), -1)


def typical(x: Tensor) -> Tensor:
    """Tokens close to the entropy, up to nine tenths of the chances: [batch, vocabulary]."""
    log = torch.log_softmax(x, -1)
    p = log.exp()
    far = (log - -(p * -log).sum(-1, keepdim=True)).abs()
    _, order = far.sort(dim=-1, stable=True)
    total = p.gather(-1, order).cumsum(-1)
    kept = (total - p.gather(-1, order)) < 0.9
    return x.masked_fill(~torch.zeros_like(kept).scatter(-1, order, kept), -1e9)


def counted_penalty(x: Tensor, token: Tensor) -> Tensor:
    """Logits less penalties for tokens seen and their number: [batch, vocabulary], [batch, time]."""
    count = torch.zeros_like(x).scatter_add(1, token, torch.ones_like(token, dtype=x.dtype))
    return x - 0.3 * count - 0.5 * (count > 0)


def sparsemax(x: Tensor) -> Tensor:
    """Projection of rows onto the simplex: [rows, n]."""
    z = x.sort(-1, descending=True).values
    k = torch.arange(1, x.shape[-1] + 1)
    total = z.cumsum(-1) - 1
    size = (k * z > total).sum(-1, keepdim=True)
    return F.relu(x - total.gather(-1, size - 1) / size)


def bags(table: Tensor, word: Tensor, length: Tensor) -> Tensor:
    """Means of embeddings of as many words as each bag has: [words, k], [bags, most]."""
    inside = (torch.arange(word.shape[1]) < length[:, None]).to(table.dtype)
    return (table[word] * inside[..., None]).sum(1) / length.clamp(min=1)[:, None]


def interest_over_time(x: Tensor, age: Tensor, decay: Tensor) -> Tensor:
    """Histories weighted by learned decays of their ages: [users, events, k]."""
    weight = torch.exp(-F.softplus(decay) * torch.log1p(age)[..., None])
    return (x * weight).sum(1) / (weight.sum(1) + 1e-6)


def pairwise_ranking(user: Tensor, item: Tensor, u: Tensor, good: Tensor, bad: Tensor) -> Tensor:
    """Loss that ranks one item above another one for each user, with weight decay."""
    a, b, c = user[u], item[good], item[bad]
    off = (a * b).sum(-1) - (a * c).sum(-1)
    return -F.logsigmoid(off).mean() + 1e-4 * (a.square() + b.square() + c.square()).sum(-1).mean()


def bins_of_numbers(x: Tensor, edge: Tensor, table: Tensor) -> Tensor:
    """Numbers as embeddings of their bins, mixed by where in it they are: [rows, fields]."""
    at = torch.searchsorted(edge, x).clamp(1, len(edge) - 1)
    part = ((x - edge[at - 1]) / (edge[at] - edge[at - 1])).clamp(0, 1)[..., None]
    return table[at - 1] * (1 - part) + table[at] * part


def ordinal(x: Tensor, cut: Tensor, label: Tensor) -> Tensor:
    """Likelihood of ordered classes between learned cuts: [n], [classes - 1], [n]."""
    edge = cut[0] + F.pad(F.softplus(cut[1:]).cumsum(0), (1, 0))
    below = F.pad(torch.sigmoid(edge - x[:, None]), (0, 1), value=1.0)
    p = below - F.pad(below[:, :-1], (1, 0))
    return -p.gather(1, label[:, None]).clamp(min=1e-6).log().mean()


def hazards(x: Tensor, event: Tensor) -> Tensor:
    """Cox's partial likelihood, patients sorted by time: [trials, patients]."""
    return -((x - torch.logcumsumexp(x, 1)) * event).sum(1) / event.sum(1)


def approximate_gain(score: Tensor, gain: Tensor) -> Tensor:
    """Smooth discounted gain of rankings: [queries, documents]."""
    ahead = torch.sigmoid((score[:, None] - score[:, :, None]) / 0.1).sum(-1) + 0.5
    return -((2**gain - 1) / torch.log2(ahead + 1)).sum(-1).mean()


def kernel_density(x: Tensor, y: Tensor, width: Tensor) -> Tensor:
    """Log densities of points under Gaussian kernels at samples: [points], [samples]."""
    z = (x[:, None] - y) / width
    return torch.logsumexp(-0.5 * z * z, -1) - torch.log(width * len(y) * 2.5066283)


def equalised(x: Tensor) -> Tensor:
    """Bytes of pictures spread by their histograms: [pictures, pixels]."""
    at = x.long()
    count = torch.zeros(len(x), 256).scatter_add(1, at, torch.ones(x.shape))
    share = count.cumsum(-1) / x.shape[1]
    return (share.gather(1, at) * 255).round().to(torch.uint8)


def box_filtered(x: Tensor) -> Tensor:
    """Means over boxes of 9 x 9 by a table of sums: [batch, h, w]."""
    table = F.pad(x, (5, 4, 5, 4)).cumsum(1).cumsum(2)
    total = table[:, 9:, 9:] - table[:, :-9, 9:] - table[:, 9:, :-9] + table[:, :-9, :-9]
    return x - total / 81


def grey_world(x: Tensor) -> Tensor:
    """White balance and gamma of pictures of bytes: [batch, h, w, 3]."""
    y = x.float() / 255
    gain = y.mean((1, 2), keepdim=True)
    y = (y * (gain.mean(-1, keepdim=True) / gain)).clamp(0, 1) ** (1 / 2.2)
    return (y * 255).round().to(torch.uint8)


def dark_channel(x: Tensor) -> Tensor:
    """Transmission of haze by the darkest of windows, and the picture behind it: [batch, 3, h, w]."""
    dark = -F.max_pool2d(-x.amin(1, keepdim=True), 7, 1, 3)
    through = (1 - 0.95 * dark).clamp(min=0.1)
    return ((x - 0.9) / through + 0.9).clamp(0, 1)


def thin_edges(x: Tensor) -> Tensor:
    """Edges that are largest along their gradient: [batch, h, w]."""
    p = F.pad(x, (1, 1, 1, 1))
    gx, gy = p[:, 1:-1, 2:] - p[:, 1:-1, :-2], p[:, 2:, 1:-1] - p[:, :-2, 1:-1]
    size = torch.sqrt(gx * gx + gy * gy + 1e-8)
    q = F.pad(size, (1, 1, 1, 1))
    flat = gx.abs() > gy.abs()
    a = torch.where(flat, q[:, 1:-1, 2:], q[:, 2:, 1:-1])
    b = torch.where(flat, q[:, 1:-1, :-2], q[:, :-2, 1:-1])
    return torch.where((size >= a) & (size >= b), size, 0.0)


def ordered_dither(x: Tensor, threshold: Tensor) -> Tensor:
    """Grey levels to one bit by a tile of thresholds, eight pixels a byte: [batch, h, w]."""
    tile = threshold.repeat(x.shape[1] // 8, x.shape[2] // 8)
    bit = (x > tile).to(torch.uint8).unflatten(-1, (-1, 8))
    return (bit << torch.arange(8, dtype=torch.uint8)).sum(-1, dtype=torch.uint8)


def binary_patterns(x: Tensor) -> Tensor:
    """Which of eight neighbours are brighter, as a byte: [batch, h, w]."""
    middle, made = x[:, 1:-1, 1:-1], torch.zeros_like(x[:, 1:-1, 1:-1], dtype=torch.int32)
    h, w = middle.shape[1:]
    places = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
    for bit, (i, j) in enumerate(places):
        made = made | ((x[:, i : i + h, j : j + w] >= middle).int() << bit)
    return made.to(torch.uint8)


def normed_planes(x: Tensor, gain: Tensor, bias: Tensor, w: Tensor) -> Tensor:
    """Layer norm over channels of planes, and a strided 2x2 convolution."""
    mean = x.mean(1, keepdim=True)
    y = (x - mean) * torch.rsqrt((x - mean).square().mean(1, keepdim=True) + 1e-6)
    return F.conv2d(y * gain[:, None, None] + bias[:, None, None], w, stride=2)


def instance_moments(x: Tensor, y: Tensor) -> Tensor:
    """Planes with the means and deviations of another picture's planes: [batch, channels, h, w]."""
    a, b = x.mean((2, 3), keepdim=True), y.mean((2, 3), keepdim=True)
    u, v = x.std((2, 3), keepdim=True) + 1e-5, y.std((2, 3), keepdim=True) + 1e-5
    return (x - a) / u * v + b


def channel_attention(x: Tensor, w: Tensor) -> Tensor:
    """Channels and then pixels scaled by gates of means and maxima: [batch, channels, h, w]."""
    mean, most = x.mean((2, 3)), x.amax((2, 3))
    y = x * torch.sigmoid(F.relu(mean @ w) @ w.T + F.relu(most @ w) @ w.T)[..., None, None]
    return y * torch.sigmoid(y.mean(1, keepdim=True) + y.amax(1, keepdim=True))


def decayed_sums(x: Tensor, log: Tensor) -> Tensor:
    """Sums with learned decays over chunks of 16 steps: [batch, heads, time, k], [batch, heads, time]."""
    x, log = x.unflatten(2, (-1, 16)), F.logsigmoid(log).unflatten(2, (-1, 16)).cumsum(-1)
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    weight = torch.where(mask, (log[..., :, None] - log[..., None, :]), -math.inf).exp()
    return (weight @ x).flatten(2, 3)


def stick_breaking(x: Tensor) -> Tensor:
    """Weights of a stick broken row by row: [rows, n]."""
    v = torch.sigmoid(x)
    left = torch.cumprod(1 - v, -1)
    return v * F.pad(left[:, :-1], (1, 0), value=1.0)


def cross_covariance(q: Tensor, k: Tensor, v: Tensor, heat: Tensor) -> Tensor:
    """Attention among channels: [batch, heads, channels, tokens]."""
    share = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT) * heat
    return (torch.softmax(share, -1) @ v).flatten(1, 2).mT


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Made, bool]] = {
    "normal floats": (
        normal_floats,
        lambda: [_bytes(512, 512), torch.rand(512, 16), torch.randn(16)],
        False,
    ),
    "Hadamard": (hadamard, _of((4096, 128)), False),
    "moved scales": (moved_scales, _of((1000, 600), (400, 600)), False),
    "powers of two": (powers_of_two, _of((700, 700)), True),
    "affine groups": (group_affine, _of((600, 1024)), False),
    "code points": (code_points, lambda: [_bytes(256, 2000)], False),
    "since an event": (since_event, lambda: [torch.rand(500, 1000) < 0.05], False),
    "packed positions": (
        packed_positions,
        lambda: [torch.randint(40, (64, 4096)).sort(-1).values],
        False,
    ),
    "least share": (least_share, lambda: [torch.randn(64, 8000), torch.rand(64) + 0.5], False),
    "typical": (typical, _of((32, 4000)), False),
    "counted penalty": (
        counted_penalty,
        lambda: [torch.randn(64, 8000), torch.randint(8000, (64, 500))],
        True,
    ),
    "sparsemax": (sparsemax, _of((1000, 128)), True),
    "bags": (
        bags,
        lambda: [torch.randn(8000, 64), torch.randint(8000, (1000, 40)), torch.randint(40, (1000,))],
        True,
    ),
    "interest over time": (
        interest_over_time,
        lambda: [torch.randn(256, 60, 64), torch.rand(256, 60) * 100, torch.randn(64)],
        True,
    ),
    "pairwise ranking": (
        pairwise_ranking,
        lambda: [
            *_of((6000, 64), (9000, 64))(),
            torch.randint(6000, (8000,)),
            *torch.randint(9000, (2, 8000)),
        ],
        True,
    ),
    "bins of numbers": (
        bins_of_numbers,
        lambda: [torch.randn(5000, 13), torch.linspace(-3, 3, 33), torch.randn(33, 16)],
        True,
    ),
    "ordinal": (ordinal, lambda: [*_of((50_000,), (9,))(), torch.randint(10, (50_000,))], True),
    "hazards": (hazards, lambda: [torch.randn(100, 2000), (torch.rand(100, 2000) < 0.5).float()], True),
    "approximate gain": (
        approximate_gain,
        lambda: [torch.randn(64, 100), torch.randint(5, (64, 100))],
        True,
    ),
    "kernel density": (
        kernel_density,
        lambda: [*_of((1000,), (800,))(), torch.tensor(0.3)],
        True,
    ),
    "equalised": (equalised, lambda: [_bytes(16, 40_000)], False),
    "box filtered": (box_filtered, _of((16, 160, 160)), True),
    "grey world": (grey_world, lambda: [_bytes(4, 200, 200, 3)], False),
    "dark channel": (dark_channel, lambda: [torch.rand(4, 3, 160, 160)], False),
    "thin edges": (thin_edges, lambda: [torch.rand(8, 200, 200)], True),
    "ordered dither": (ordered_dither, lambda: [torch.rand(8, 256, 256), torch.rand(8, 8)], False),
    "binary patterns": (binary_patterns, lambda: [torch.rand(8, 200, 200)], False),
    "normed planes": (normed_planes, _of((4, 64, 48, 48), (64,), (64,), (96, 64, 2, 2)), True),
    "moments of another": (instance_moments, _of((8, 64, 40, 40), (8, 64, 40, 40)), True),
    "channel attention": (channel_attention, _of((8, 64, 40, 40), (64, 8)), True),
    "decayed sums": (decayed_sums, _of((4, 8, 512, 32), (4, 8, 512)), True),
    "broken stick": (stick_breaking, _of((2000, 200)), True),
    "cross covariance": (cross_covariance, _of(*[(8, 4, 32, 400)] * 3, (4, 1, 1)), True),
}
