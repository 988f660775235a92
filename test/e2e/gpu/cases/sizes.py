"""Sizes that change from call to call, in symbols; a result in an input's memory; a causal attention."""

import torch
import torch.nn.functional as F


def scores(x, w):
    return torch.softmax(x @ w * 0.3, -1).sum(0), (x + 1).amax(-1)


def scale(x):
    x.mul_(2).add_(1)
    return x.sum()


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def run(compile):
    torch.manual_seed(0)
    made, f = [], compile(scores)
    w = torch.randn(7, 9)
    for rows in (5, 12, 33):
        made.append(f(torch.randn(rows, 7), w))
    x = torch.randn(41)
    made += [compile(scale)(x), x]
    q, k, v = (torch.randn(1, 2, 9, 16, requires_grad=True) for _ in range(3))
    out = compile(attend)(q, k, v)
    out.square().sum().backward()
    return [*made, out.detach(), q.grad, k.grad, v.grad]
