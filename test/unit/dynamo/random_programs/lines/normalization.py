"""Softmax and the norms."""

LINES = """
    {x}.softmax({d})
    {x}.softmax({d}, dtype=f32)
    {x}.log_softmax({d})
    {x}.masked_fill({m}, -1e4).softmax({d})
    F.softmin({x}, {d})
    F.layer_norm({x}, {x}.shape[-1:], eps=0.1)
    F.layer_norm({x}, {x}.shape[-2:], eps=0.1)
    F.layer_norm({x}, {x}.shape[-1:], {l}, {l}, eps=0.1)
    F.rms_norm({x}, {x}.shape[-1:], eps=0.1)
    F.rms_norm({x}, {x}.shape[-1:], {l}, eps=0.1)
    F.group_norm({x}, 1, eps=0.1)
    F.group_norm({x}, {x}.shape[1], eps=0.1)
    F.instance_norm({x}, eps=0.1)
    F.batch_norm({x}, None, None, training=True, eps=0.1)
    F.normalize({x}, dim={d}, eps=0.1)
    F.normalize({x}, p=1.0, dim={d}, eps=0.1)
    F.glu({x}, {d})
    {x} * ({x}.square().mean(-1, keepdim=True) + 0.1).rsqrt()
"""
