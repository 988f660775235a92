"""Arithmetic on integers."""

LINES = """
    {i} + {i}
    {i} * 2 + 1
    {i} - {n}
    {i} // 3
    {i} % 3
    torch.remainder({i}, 5)
    torch.fmod({i}, 5)
    {i} & 3
    {i} | 1
    {i} ^ {i}
    {i} << 1
    {i} >> 1
    {i}.sum({d})
    {i}.cumsum({d})
    {i}.float().mean({d})
    {i} / 2
    {i} * 0.5
    {i}.prod({d})
    -{i}
    {i}.abs()
    {i}.clamp(0, 3)
    F.one_hot({i}.long() % 5, 5)
    torch.arange(7)[{i}.long().contiguous() % 7]
    {i}.bool()
    {i}.to({t}).tanh()
    {i}.amax({d})
    {i}.sum().to({t})
    torch.div({i}, 2, rounding_mode="floor")
    torch.div({i}, -2, rounding_mode="trunc")
    {i}.float().cumsum({d})
    {i}.cumprod({d})
    {i}.sum({d}, dtype=i32)
    {i}.max({d}).values + 1
    {i}.sort({d})[0]
    {i}.flatten().long().clamp(0, 9).bincount()
    {i}.bitwise_not()
    {i} ** 2
    2 ** {i}.clamp(0, 5)
    {i}.float().sqrt().to({i}.dtype)
    {i} + 0.5
    {i} == {n}
    {i} * {n}
    {i}.gcd({i} + 2)
    {i}.to(u8) + 250
    {i}.to(i32) * 3
    torch.zeros(10).index_add(0, {i}.flatten().long() % 10, torch.ones({i}.numel()))
    torch.zeros(10, dtype=i64).scatter_add(0, {i}.flatten().long() % 10, {i}.flatten().long())
    F.one_hot({i}.long() % 4, 4).to({t}).mean({d})
"""
