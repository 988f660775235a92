"""Views, and copies where PyTorch makes one of a view."""

LINES = """
    {v}.transpose({d}, -1)
    {v}.mT
    {v}.permute({perm})
    {v}.flatten()
    {v}.flatten(0, 1)
    {v}.reshape(-1, {v}.shape[-1])
    {v}.unsqueeze({d})
    {v}.unsqueeze(-1)
    {v}.squeeze({d})
    {v}.squeeze()
    {v}.unsqueeze(0).expand(3, *{v}.shape)
    {v}.expand(2, *{v}.shape)
    {v}.select({d}, {j})
    {v}.select({d}, -1)
    {v}.narrow({d}, {j}, 1)
    {v}[{slice}]
    {v}[..., {j0}:]
    {v}[..., ::2]
    {v}[1:]
    {v}[:-1]
    {v}[..., None, :]
    {v}.chunk(2, {d})[0]
    {v}.chunk(2, {d})[-1]
    {v}.split(3, {d})[-1]
    torch.cat(tuple(reversed({v}.chunk(3, {d}))), {d})
    {v}.unbind({d})[0]
    {v}.unflatten(-1, (-1, 1))
    {v}.diagonal()
    {v}.movedim({d}, 0)
    {v}.view({v}.shape)
    {v}.detach()
    {v}.t()
    {v}.expand_as({v})
    {v}.unfold({d}, 2, 1)
    {v}.swapaxes(0, -1)[..., :2]
    {v}[::2]
    {v}[..., 1::3]
    {v}[-3:-1]
    {v}[..., -1]
    {v}[None]
    {v}.T if {v}.dim() == 2 else {v}.mT
    {v}.adjoint()
    {v}.as_strided({v}.shape, {v}.stride())
    {v}.flatten(-2, -1)
    {v}.unsafe_chunk(2, {d})[0]
    {v}.tensor_split(3, {d})[1]
    {v}.hsplit(1)[0]
    {v}.ravel()
    {v}.view(1, *{v}.shape)
    {v}.reshape(*{v}.shape[::-1])
    {v}.diagonal(1, 0, -1)
    {v}.squeeze(0).squeeze(-1)
    {v}.squeeze((0, -1))
    torch.atleast_2d({v})
    {v}.transpose(0, -1).transpose(0, -1)
    {v}.unfold({d}, 2, 2)
    {v}.unsqueeze(-1).expand(*{v}.shape, 2)[..., 0]
    {v}.narrow({d}, -1, 1)
    {v}.broadcast_to((2, *{v}.shape))[1]
    {v}.view(i32) if {v}.dtype == torch.float32 else {v}.detach()
"""
