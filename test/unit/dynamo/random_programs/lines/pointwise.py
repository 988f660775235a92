"""Arithmetic, activations, conversions and makers, element by element."""

LINES = """
    {x}.neg()
    {x}.tanh()
    {x}.sigmoid()
    {x}.sin() * {x}.cos()
    ({x} * {x} + 0.1).sqrt()
    {x}.tanh().exp()
    ({x} * {x} + 0.5).log()
    ({x} * {x} + 0.25).rsqrt()
    {x}.square().add(0.5).reciprocal()
    {x}.erf()
    {x}.tanh().expm1()
    {x}.abs().log1p()
    {x}.atan()
    {x} ** 2
    {x} ** 3
    {x}.abs().add(0.25) ** 0.5
    ({x}.square() + 0.5) ** {c}
    F.gelu({x})
    F.gelu({x}, approximate="tanh")
    F.silu({x})
    F.mish({x})
    F.softplus({x})
    F.elu({x})
    F.selu({x})
    F.logsigmoid({x})
    F.hardswish({x})
    F.hardsigmoid({x})
    F.leaky_relu({x}, 0.1)
    F.relu6({x})
    F.softsign({x})
    F.tanhshrink({x})
    {x} * 1.25 - 0.5
    {c} - {x}
    {c} / ({x}.square() + 0.5)
    {x} + 2
    {x} + {y}
    {x} - {y}
    {x} * {y}
    {x} / ({y}.square() + 0.5)
    {y} - {x}
    torch.lerp({x}, {y}.to({x}.dtype), {c})
    torch.add({x}, {y}, alpha=0.75)
    torch.sub({x}, {y}, alpha=2)
    torch.hypot({x}, {y}.to({x}.dtype) + 2)
    torch.atan2({x}, {y}.to({x}.dtype).square() + 0.5)
    torch.logaddexp({x}, {y}.to({x}.dtype))
    torch.addcmul({x}, {y}.to({x}.dtype), {x}, value=0.5)
    torch.addcdiv({x}, {x}, {y}.to({x}.dtype).square() + 1, value=0.5)
    torch.where({m}, {x}, {y})
    torch.where({m}, {x}, {c})
    torch.where({m}, {c}, {x})
    {x}.masked_fill({m}, {c})
    {x}.masked_fill({m}, float("-inf")).exp()
    {x} * {m}
    {x} + {n}
    {x} * {n}.to({x}.dtype)
    torch.tensor(1.5) * {x}
    torch.tensor(0.75, dtype=f64) + {x}
    {x} * torch.tensor(3)
    {x}.to({t})
    {x}.to({t}).exp().clamp(max=10)
    {x}.clone()
    {x}.contiguous()
    {x}.detach() * {x}
    F.dropout({x}, 0.0)
    torch.zeros_like({x}) + {y}
    torch.full_like({x}, {c}) * {x}
    torch.ones({v}.shape, dtype={t})
    torch.arange({v}.numel()).reshape({v}.shape).to({t}) * 0.01
    torch.linspace(0, 1, {v}.numel()).reshape({v}.shape)
    torch.where({x} > 0, {x}, {x} * 0.1)
    torch.where({x}.isnan(), 0, {x})
    {x}.to({t}) * {y}
    {x}.type_as({y}) + {y}
    {x}.frac()
    {x}.sinh().tanh()
    {x}.asinh()
    {x}.tanh().mul(0.9).atanh()
    {x}.tanh().mul(0.9).asin()
    {x}.tanh().mul(0.9).acos()
    {x}.sinc()
    {x}.exp2().clamp(max=9)
    {x}.square().add(1).log2()
    {x}.square().add(1).log10()
    {x}.erfc()
    {x}.tanh().mul(0.9).erfinv()
    {x}.square().add(1).lgamma()
    {x}.tanh().logit(eps=0.2)
    {x}.xlogy({y}.to({x}.dtype).square() + 0.5)
    {x}.float_power(2)
    {x}.clamp(min={x}.mean())
    {x}.clamp({x} * 0.5, {x} * 2)
    F.celu({x})
    F.hardshrink({x}, 0.3) * 2
    F.softshrink({x}, 0.3)
    F.rrelu({x}, 0.2, 0.2, training=False)
    torch.rsub({x}, {y})
    torch.nn.functional.logsigmoid({x}).sum(-1)
    {x}.ldexp(torch.tensor(2))
    {x}.nextafter({x}).mul(1)
    {x}.deg2rad()
    {x}.sgn() * 2
    {x}.positive()
    torch.clip({x}, -1, 1)
    {x}.mul(2).sub_(1).tanh_()
    torch.rand_like({x}) * 0 + {x}
    torch.empty_like({x}).fill_({c}) + {x}
    {x}.new_ones({x}.shape) - {x}
    torch.scalar_tensor(2) * {x}
    {x}.bfloat16().float()
    {x}.half() + {x}.bfloat16()
"""
