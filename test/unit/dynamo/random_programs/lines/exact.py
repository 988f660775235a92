"""Ops whose result no rounding touches: comparisons, clamps, extremes, positions."""

LINES = """
    {e}.relu()
    {e}.abs()
    {e}.sign()
    {e}.clamp(-0.5, 1)
    {e}.clamp(min=0)
    {e}.round()
    {e}.floor()
    {e}.ceil()
    {e}.trunc()
    {e}.nan_to_num()
    torch.maximum({e}, {f})
    torch.minimum({e}, {f})
    torch.fmax({e}, {f})
    {e} > {f}
    {e} <= {f}
    {e} == {f}
    {e} != {c}
    {e} > 0
    {e}.isnan()
    {e}.isinf()
    {e}.isfinite()
    {e}.logical_not()
    torch.logical_and({e} > 0, {f})
    ({e} > 0) ^ ({f} > 0)
    ~({e} > 0)
    {e}.bool()
    {e}.nan_to_num(0, 9, -9).clamp(-9, 9).long()
    {e}.nan_to_num(0, 9, -9).clamp(-9, 9).int()
    {e}.nan_to_num(0, 9, -9).clamp(0, 9).to(u8)
    {e}.argmax({d}, keepdim={k})
    {e}.argmin({d})
    {e}.argmax()
    {e}.amax({ds}, keepdim={k})
    {e}.amin({ds}, keepdim={k})
    {e}.max({d}).values
    {e}.max({d}).indices
    {e}.min({d}, keepdim=True)[0]
    {e}.max()
    {e}.min()
    ({e} > 0).any({d}, keepdim={k})
    ({e} > 0).all({d})
    ({e} > 0).sum({ds})
    ({e} > 0).sum({ds}, keepdim={k})
    {e}.count_nonzero()
    {e}.sort({d}).values
    {e}.topk(1, {d}).values
    torch.heaviside({e}, {e})
    torch.copysign({e}, {f})
    {e}.signbit()
    {e}.masked_fill({e} > 0, {c})
    F.max_pool1d({e}, 2, padding=1)
    F.threshold({e}, 0.1, 0.2)
    F.hardtanh({e})
    F.hardshrink({e})
    {e}.cummax({d}).values
    {e}.cummin({d})[1]
    {e}.sort(dim={d}, descending=True, stable=True).indices
    {e}.argsort(dim={d}, stable=True)
    {e}.topk(1, {d}, largest=False)[0]
    {e}.median({d}).values
    {e}.kthvalue(1, {d}).values
    torch.aminmax({e}).max
    torch.isclose({e}, {f})
    torch.isin({e}, torch.tensor([0, 1]))
    torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0, 2.0]), {e}.to(f32).contiguous())
    torch.bucketize({e}.to(f32), torch.tensor([-1.0, 0.0, 1.0]))
    {e}.diff(dim={d})
    {e}.eq(0).all()
    {e}.gt(0).cumsum({d})
    torch.where({e} > {f}, {e}, {f})
    ({e} > 0).to({t}) * 2
    {e}.nan_to_num(0, 9, -9).clamp(-9, 9).to(i64) & 1
    {e}.clamp(max={f})
    torch.equal({e}, {e}) * {e}
"""
