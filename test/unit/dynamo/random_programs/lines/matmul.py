"""Contractions: matmuls, einsum, attention."""

LINES = """
    {x} @ {x}.mT
    {x}.mT @ {x} * 0.1
    {x} @ {w}
    F.linear({x}, {w}.mT)
    F.gelu(F.linear({x}, {w}.mT, {w}.sum(0)))
    F.linear({x}, {w}.mT) + {x}[..., :1]
    torch.addmm({x}[..., :1], {x}, {w})
    torch.addmm({x}[..., :1], {x}, {w}, beta=0.5, alpha=2)
    torch.baddbmm({x}[..., :1], {x}, {x}.mT @ {x}, alpha=0.1)
    torch.einsum("...ij,...kj->...ik", {x}, {x})
    torch.einsum("...ij,jk->...k", {x}, {w})
    torch.relu({x} @ {w}).square().sum(-1)
    ({x} @ {w}).softmax(-1)
    F.layer_norm({x}, {x}.shape[-1:], eps=0.1) @ {w}
    {x} @ {x}.select(-2, 0).unsqueeze(-1)
    torch.mv({x}, {x}[0])
    torch.outer({x}.flatten()[:5], {x}.flatten()[:4])
    torch.dot({x}.flatten(), {x}.flatten())
    F.scaled_dot_product_attention({q}, {q}.tanh(), {q})
    F.scaled_dot_product_attention({q}, {q}, {q} * 0.5, is_causal=True)
    torch.einsum("...ij->...ji", {x}) * 2
    torch.einsum("...i,...i->...", {x}, {y}.to({x}.dtype).expand_as({x}))
    torch.einsum("i...,j...->ij", {x}.flatten(1)[:3], {x}.flatten(1)[:3])
    torch.einsum("bi,bj->bij", {x}.flatten(1)[:5, :5], {x}.flatten(1)[:5, :6])
    torch.tensordot({x}, {x}, dims=([-1], [-1])) * 0.1
    torch.inner({x}, {x}) * 0.1
    torch.chain_matmul({x}.flatten(1)[:3], {x}.flatten(1)[:3].mT, {x}.flatten(1)[:3]) * 0.1
    torch.addmv({x}.flatten(1)[:, 0], {x}.flatten(1), {x}.flatten(1)[0]) * 0.1
    torch.addr({x}.flatten(1)[:1, :1], {x}.flatten()[:3], {x}.flatten()[:2])
    torch.addbmm({x}.flatten(0, -2).mT @ {x}.flatten(0, -2), {x3}.mT, {x3}) * 0.1
    torch.cdist({x}.flatten(0, -2), {x}.flatten(0, -2)[:4] * 0.5 + 2)
    torch.matmul({x}, {x}.select(0, 0).mT) * 0.1
    torch.linalg.multi_dot([{x}.flatten(1)[:3], {x}.flatten(1)[:3].mT]) * 0.1
    ({x}.flatten(0, -2).mT @ {x}.flatten(0, -2)).diagonal()
    torch.cross({x}[..., :3].contiguous(), {x}[..., :3] * 0.5 + 1, dim=-1)
    F.scaled_dot_product_attention({q}, {q}, {q}, attn_mask={q}[..., :1] @ {q}[..., :1].mT, scale=0.3)
    F.scaled_dot_product_attention({q}, {q}, {q}, attn_mask=({q}[..., :1] @ {q}[..., :1].mT).abs() >= 0)
    F.linear({x}, {w}.mT, {w}[0])
    ({x} @ {w} + {w}[0]).tanh() @ {w}.mT
    {x} @ {w} * {x}.mean() + ({x} @ {w}).sum(-1, keepdim=True)
"""
