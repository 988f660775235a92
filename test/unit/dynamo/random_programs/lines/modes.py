"""What is under a mode, in complex numbers, through Python numbers, or of a size that depends on values."""

LINES = """
    with torch.no_grad(): {new} = {x} * 2
    with torch.no_grad(): {new} = {v}[..., 1:]
    with torch.no_grad(): {new} = {x}.softmax(-1)
    with torch.no_grad(): {new} = {v}.clone()
    with torch.autocast("cpu"): {new} = {x} @ {w}
    with torch.autocast("cpu"): {new} = F.linear({x}, {w}.mT, {w}.sum(0)).relu()
    with torch.autocast("cpu"): {new} = ({x} @ {w}).softmax(-1)
    with torch.autocast("cpu"): {new} = F.layer_norm({x} @ {w} @ {w}.mT, {x}.shape[-1:], eps=0.1)
    with torch.autocast("cpu", enabled=False): {new} = {x}.tanh()
    with torch.set_grad_enabled(False): {new} = {x} + {y}
    torch.complex({x}.to(f32), {x}.to(f32) * 0.5).abs()
    torch.polar({x}.to(f32).abs() + 0.5, {x}.to(f32)).real
    torch.view_as_real(torch.polar(torch.ones({x}.shape), {x}.to(f32)))
    torch.view_as_real(torch.view_as_complex(torch.stack([{x}.to(f32), {x}.to(f32)], -1)) * (0.5 + 1j))
    (torch.complex({x}.to(f32), {x}.to(f32)) * torch.complex({x}.to(f32), {x}.to(f32).cos()).conj()).imag
    torch.fft.rfft({x}.to(f32)).abs().square()
    torch.fft.irfft(torch.fft.rfft({x}.to(f32)), {x}.shape[-1])
    torch.fft.fft({x}.to(f32)).real
    {x} * float({x}.dim())
    {x}[{m}.expand_as({x})]
    {e}[{e} > 0]
    {e}.masked_select({e} > 0).sum()
    {e}.nonzero()
    {e}.unique()
    torch.cat([t * 2 for t in {x}.unbind({d})][:3], -1) if {x}.dim() > 1 else {x}
    sum(t.sin() for t in {x}.chunk(3, {d}))
    torch.utils.checkpoint.checkpoint(lambda t: t.sin().exp(), {x}, use_reentrant=False)
    torch.vmap(lambda t: t * 2 + t.sum())({x})
    torch.func.grad(lambda t: t.sin().sum())({x})
"""
