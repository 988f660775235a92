"""Reads and writes at computed indices."""

LINES = """
    {v}.index_select({d}, {g})
    {v}[{g}]
    {v}[{g0}]
    {v}[:, {g1}]
    {v}[..., [0, 0]]
    F.embedding({g0}, {x}.flatten(1))
    F.embedding({g0}[:3].reshape(-1, 1), {x}.flatten(1), padding_idx=0)
    {x}.gather({d}, {gs})
    {v}.take_along_dim({gs}, {d})
    {x}.scatter({d}, {gs}[:1], 0.5)
    {x}.scatter_add({d}, {gs}, {x}.tanh())
    torch.zeros_like({x}).index_add({d}, {g}, {x}.index_select({d}, {g}))
    {x}.index_fill({d}, {g}, 0.5)
    {x}.index_copy({d}, torch.arange({x}.shape[{d}]), {x} * 2)
    {x}.index_put(({g0},), {x}[{g0}].tanh(), accumulate=True)
    {x}.select_scatter({x}.select({d}, 0) * 2, {d}, {j})
    {x}.slice_scatter({x}[:1] * 2, 0, 0, 1)
    torch.take({x}, {g0})
    {v}[{v}.shape[0] - 1]
    {x}.flatten().masked_fill(torch.arange({x}.numel()) % 3 == 0, 0.25)
    {v}[-1 - {g0}]
    {v}[{g0}, ..., 0]
    {v}[{g0}, {g0} * 0]
    {v}[{g0}[:, None], {g0}[None] * 0]
    {v}[:, {g1}, None]
    {v}[0, ..., {gl}]
    {v}[1:][{g0}[:1] * 0]
    {v}.index_select(0, {g0}).index_select(-1, {gl})
    {x}.scatter({d}, {gs}[:1], {x} * 2)
    {x}.scatter({d}, {gs}, 1.5, reduce="add")
    {x}.scatter_reduce({d}, {gs}, {x}, "amax")
    {x}.scatter_reduce({d}, {gs}, {x}.tanh(), "mean", include_self=False)
    {x}.scatter_reduce({d}, {gs}, {x}.tanh(), "sum")
    torch.zeros_like({x}).scatter_({d}, {gs}, {x})
    {x}.index_put(({g0},), torch.tensor({c}).to({x}.dtype))
    {x}.index_add({d}, {g}, {x}.index_select({d}, {g}), alpha=0.5)
    {x}.index_reduce({d}, {g}, {x}.index_select({d}, {g}).tanh(), "mean")
    {x}.masked_scatter({x} > 0, {x} * 2)
    {x}.diagonal_scatter({x}.diagonal() * 2)
    {x}.slice_scatter({x}[::2] * 2, 0, 0, None, 2)
    {x}.put({g0}, {x}.flatten()[:1].expand({g0}.shape))
    {x}.gather({d}, {x}.argsort(dim={d}, stable=True) * 0)
    {x}.flatten(1)[torch.arange({x}.shape[0]), {g0}.new_zeros({x}.shape[0])]
    torch.embedding({x}.flatten(1), {g0}).sum(0)
    F.embedding({g0}, {x}.flatten(1)) @ {x}.flatten(1).mT * 0.1
"""
