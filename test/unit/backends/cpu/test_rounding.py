"""Conversion of f32 to bf16: every upper half of a number, with lower halves at and near a tie."""

import torch
from bodies import Body, compiled


def test_rounds_to_nearest_even_as_eager():
    upper = torch.arange(-(2**15), 2**15, dtype=torch.int32) << 16
    lower = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=torch.int32)
    x = (upper[:, None] | lower).flatten().view(torch.float32)
    body = Body("narrow")
    code = "%r = arith.truncf %0 : f32 to bf16"
    body.results = [body.map([body.argument((x.numel(),), "f32")], code, "bf16")]
    (got,) = compiled(body)(x)
    eager = x.bfloat16()
    known = ~x.isnan()
    assert known.sum() > 390_000
    assert torch.equal(got.view(torch.int16)[known], eager.view(torch.int16)[known])
    assert got[~known].isnan().all()
