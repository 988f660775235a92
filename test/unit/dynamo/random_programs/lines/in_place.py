"""Writes into a value, or into a view of it."""

LINES = """
    {o}.mul_(0.5)
    {o}.add_({y}.to({o}.dtype).expand_as({o}))
    {o}.sin_()
    {o}.relu_()
    {o}.zero_()
    {o}.fill_({c})
    {o}.copy_({y}.expand_as({o}))
    {o}[..., 0] = 0.5
    {o}[0] = {o}[-1]
    {o}[1:] *= 2
    {o}[..., ::2] += 1
    {o}.select({d}, 0).mul_(3)
    {o}.mT.mul_(1.5)
    {o}.flatten()[:2].zero_()
    {o}.masked_fill_({m}, 0.25)
    {o}.transpose({d}, -1).add_(1)
    {o}.view(-1)[:3].exp_()
    {o}[{g0}] = 1.0
    {o}.clamp_(-1, 1)
    {o} += 1
    {o} -= {o}.mean()
    {o}.t_()
    {o}.squeeze_({d})
    {o}.diagonal().fill_(0.5)
    {o}.index_add_({d}, {g}, {o}.index_select({d}, {g}).detach())
    {o}[..., 1::2] *= -1
    {o}.unsqueeze(0).add_(1)
    {o}.unbind(0)[0].mul_(2)
    {o}.chunk(2, {d})[-1].copy_({o}.chunk(2, {d})[-1] * 2)
    {o}.scatter_({d}, {gs}, 0.25)
    {o}.scatter_add_({d}, {gs}, {o}.detach().tanh())
    {o}.index_fill_({d}, {g}, 0.5)
    {o}.index_put_(({g0},), torch.tensor(0.5, dtype={o}.dtype), accumulate=True)
    {o}.index_copy_({d}, torch.arange({o}.shape[{d}]), {o}.detach() * 2)
    {o}.cumsum_({d})
    {o}.lerp_({o}.detach() * 2, 0.5)
    {o}.addcmul_({o}.detach(), {o}.detach(), value=0.5)
    {o}.detach().mul_(2)
    {o}.data.add_(1)
    torch._foreach_mul_([{o}, {o}], 1.5)
    {o}.flip({d}).add_(1)
    {o}[{o} > 0] = 0.5
    {o}[:, 0], {o}[:, -1] = 1.0, 2.0
    {o}[..., None].sub_(0.5)
    {o}.expand_as({o}).mul_(0.5)
    {o}.permute({perm}).add_({o}.permute({perm}).detach() * 0.5)
    {o}.narrow({d}, {j}, 1).fill_(2)
    {o}.tril_()
    {o}.masked_scatter_({o} > 0, {o}.detach() * 2)
    {o}.pow_(2).add_(1).sqrt_()
    {o}.bernoulli_(1.0)
    {o}.swapaxes(0, -1)[0].zero_()
    {o}[{o}.shape[0] // 2 :].mul_(0.5)
    {o}[: {o}.shape[0] // 2] = {o}[-1:].detach()
    torch.mul({o}.detach(), 2, out={o}.detach())
    {o}.unsqueeze_(0)
    {o}.transpose_(0, -1)
    {o}.squeeze_().mul_(2)
    {o}.requires_grad_(True).mean()
    {o}.neg_()
"""
