"""Attention, forward and backward: masks, grouped heads, sizes and scales; what lies otherwise; and what
stays PyTorch's.
"""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

ROWS = 9
DEAD = torch.ones(ROWS, ROWS, dtype=torch.bool).tril()
DEAD[4] = False
"""A mask with a row that sees nothing."""


def given(*shapes):
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def beside(q, k, v, **settings):
    """Heads beside sizes before and after it, as models have them."""
    out = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), **settings)
    return out.transpose(1, 2).flatten(2).tanh()


def one_matmul(x, w):
    q, k, v = (y.unflatten(-1, (2, -1)).transpose(1, 2) for y in (x @ w / 4).chunk(3, -1))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def of_three_dims(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, scale=0.3)


def again(q, k, v):
    return checkpoint(of_three_dims, q, k, v, use_reentrant=False)


def learned(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, mask)


def plain(q, k, v):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v)


def run(compile):
    torch.manual_seed(0)
    heads = [(2, ROWS, 4, 16), (2, ROWS, 2, 16), (2, ROWS, 2, 16)]
    wide = [(1, 2, ROWS, 20), (1, 2, 13, 20), (1, 2, 13, 12)]
    calls = [
        (lambda *x: beside(*x, is_causal=True, enable_gqa=True), given(*heads)),
        (lambda *x: beside(*x, attn_mask=DEAD, enable_gqa=True), given(*heads)),
        (
            lambda q, k, v: F.scaled_dot_product_attention(
                q, k, v, torch.linspace(-1, 1, 26).view(2, 1, 13), scale=0.2
            ),
            given(*wide),
        ),
        (one_matmul, given((2, ROWS, 16), (16, 48))),
        (of_three_dims, given(*[(3, ROWS, 8)] * 3)),
        (again, given(*[(3, ROWS, 8)] * 3)),
        (learned, given(*[(1, 2, ROWS, 8)] * 3, (ROWS, ROWS))),
        (plain, given(*[(1, 2, ROWS, 8)] * 3)),
    ]
    made = []
    for function, inputs in calls:
        out = compile(function, options={"matmuls": "generated"})(*inputs)
        out.square().sum().backward()
        made += [out.detach(), *(x.grad for x in inputs)]
    any_rows = compile(lambda *x: beside(*x, is_causal=True), options={"matmuls": "generated"})
    for rows in (7, 18, 33):  # symbols from the second on
        inputs = given(*[(2, rows, 2, 16)] * 3)
        any_rows(*inputs).square().sum().backward()
        made += [x.grad for x in inputs]
    with torch.no_grad():
        return [*made, any_rows(*inputs)]
