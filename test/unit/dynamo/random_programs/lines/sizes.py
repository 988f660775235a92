"""Arithmetic on sizes, as models do it: parts, heads, positions, masks and scales from the shape
of a value.
"""

LINES = """
    {x} * {x}.shape[{d}]
    {x} / {x}.shape[-1] ** 0.5
    {x}.sum({d}) / {x}.size({d})
    {x} + {x}.numel()
    {x} * ({x}.shape[-1] % 3)
    {x} * min({x}.shape[0], 4)
    {x} if {x}.shape[0] > 4 else {x} * 2
    {x}.softmax(-1) if {x}.shape[-1] % 2 else {x}.cos()
    {x}[..., : {x}.shape[-1] // 2]
    {x}[..., {x}.shape[-1] // 2 :] * 2
    {v}[{v}.shape[0] // 2 :]
    {v}[: -({v}.shape[0] // 3) or None]
    {v}[{v}.shape[0] // 2]
    {v}.narrow({d}, {v}.shape[{d}] // 2, 1)
    {v}.split({v}.shape[{d}] // 2 + 1, {d})[0]
    {v}.split([1, {v}.shape[{d}] - 1], {d})[1]
    torch.cat([-{x}[..., {x}.shape[-1] // 2 :], {x}[..., : {x}.shape[-1] // 2]], -1)
    torch.cat([{x}, {x}.new_zeros(*{x}.shape[:-1], 2)], -1)
    torch.cat([{v}[1:], {v}[:1]])
    {v}.reshape({v}.shape[0], -1)
    {v}.reshape({v}.shape[0], 1, -1).transpose(1, 2)
    {v}.view(-1, {v}.shape[-1]).t()
    {v}.flatten(0, -2).unflatten(0, {v}.shape[:-1])
    {v}.expand({v}.shape[0], *{v}.shape)
    {x} * torch.arange({x}.shape[-1])
    {x} + torch.arange({x}.shape[0], dtype=f32).exp().reciprocal().reshape(-1, *[1] * ({x}.dim() - 1))
    {x} * torch.linspace(0, 1, {x}.shape[-1])
    {x}[..., torch.arange({x}.shape[-1] - 1, -1, -1)]
    {x}.masked_fill(torch.arange({x}.shape[-1]) > {x}.shape[-1] // 2, {c})
    {x} * torch.ones({x}.shape[-2], {x}.shape[-1]).tril()
    ({x} @ {x}.mT).masked_fill(torch.ones({x}.shape[-2], {x}.shape[-2], dtype=b8).triu(1), float("-inf")).softmax(-1)
    torch.where(torch.arange({x}.shape[-2])[:, None] >= torch.arange({x}.shape[-1]), {x}, 0.0)
    torch.eye({x}.shape[-1], dtype={x}.dtype) + {x}[..., -1:]
    torch.zeros({x}.shape[0], 3).to({x}.dtype) + {x}.flatten(1)[:, :1]
    F.pad({x}, (0, {x}.shape[-1] % 4))
    F.pad({x}, ({x}.shape[-1] // 2, 0), value={c})
    {v}.repeat_interleave({v}.shape[0] % 3 + 1, 0)
    {v}.tile(2)[: {v}.shape[0]]
    {x}.unfold(-1, {x}.shape[-1] // 2 + 1, 1).mean(-1)
    F.one_hot(torch.arange({x}.shape[-1]), {x}.shape[-1] + 1).to({x}.dtype) * {x}[..., :1].sum()
    F.scaled_dot_product_attention({x}.flatten(0, -2)[None, None], {x}.flatten(0, -2)[None, None], {x}.flatten(0, -2)[None, None], is_causal=True)
    torch.full(({x}.shape[-1],), {c}) * {x}
    {x}.new_full({x}.shape[:1], 2)
    torch.bmm({x}.flatten(0, -2)[None].expand(2, -1, -1), {x}.flatten(0, -2).mT[None].expand(2, -1, -1)) * 0.1
"""  # noqa: E501
