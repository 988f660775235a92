"""What is measured on a GPU: programs of one kernel family at sizes that fill the chip, and what they are
held against. Needs torch alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "gpu"))

from cases import (
    BF16,
    F32,
    I64,
    Case,
    Given,
    attend,
    attend_backward,
    cross_entropy,
    dropout_add_norm,
    layer_norm_backward,
    rms_norm,
    rope,
    t,
)
from torch.nn import functional as F

SQUARES = ((4096, 4096, 4096), (8192, 8192, 8192))
SHAPES = (
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (3072, 3072, 3072),
    (6144, 6144, 6144),
    (16384, 1024, 4096),
    (16384, 4096, 1024),
    (8192, 2048, 5632),
    (8192, 5632, 2048),
    (8192, 2048, 2048),
    (8192, 512, 2048),
    (8192, 32000, 2048),
    (2048, 32000, 8192),
    (5632, 2048, 8192),
    (16384, 3072, 1024),
    (4096, 14336, 4096),
    (4096, 4096, 14336),
    (512, 4096, 16384),
    (1000, 1000, 1000),
    (4097, 4095, 2056),
    (128, 8192, 8192),
)
"""Rows, columns, terms: squares, layers of Llama and GPT-2 both ways, long sums, odd sizes, few rows."""
ROWS, HIDDEN, WORDS = 16384, 4096, 32000


def cases() -> dict[str, Case]:
    """By name. What stands before the first ``_`` says what a case is held against: see ``run.py``."""
    b = lambda *shape: t(*shape, dtype=BF16)  # noqa: E731
    rows, heads, kv = b(ROWS, HIDDEN), b(4, 32, 4096, 128), b(4, 8, 4096, 128)
    small = b(8, 16, 2048, 64)
    found = {
        f"matmul_{m}x{n}x{k}": Case(lambda x, y: x @ y, (b(m, k), b(k, n))) for m, n, k in SQUARES + SHAPES
    }
    return found | {
        "copy_bias_gelu": Case(lambda x, w: F.gelu(x + w), (rows, b(HIDDEN))),
        "copy_softmax": Case(lambda x: x.softmax(-1), (rows,)),
        "copy_softmax_long": Case(lambda x: x.softmax(-1), (b(8192, WORDS),)),
        "copy_rms_norm": Case(rms_norm, (rows, b(HIDDEN))),
        "copy_layer_norm": Case(
            lambda x, w, v: F.layer_norm(x, [HIDDEN], w, v), (rows, b(HIDDEN), b(HIDDEN))
        ),
        "copy_layer_norm_backward": Case(
            layer_norm_backward,
            (rows, rows, t(ROWS, 1), t(ROWS, 1), b(HIDDEN)),
        ),
        "copy_cross_entropy": Case(cross_entropy, (b(8192, WORDS), Given((8192,), I64, WORDS))),
        "copy_bias_gradient": Case(lambda x: x.float().sum(0), (rows,)),
        "flash_forward": Case(attend, (heads, kv, kv)),
        "flash_backward": Case(attend_backward, (heads, heads, kv, kv)),
        "flash_forward_64": Case(attend, (small, small, small)),
        "flash_backward_64": Case(attend_backward, (small,) * 4),
        "inductor_rope": Case(rope, (b(4, 32, 4096, 128), b(4096, 128), b(4096, 128))),
        "inductor_swiglu": Case(lambda x, y: F.silu(x) * y, (b(ROWS, 11008), b(ROWS, 11008))),
        "inductor_dropout_add_norm": Case(
            dropout_add_norm,
            (t(ROWS, HIDDEN), t(ROWS, HIDDEN), Given((HIDDEN,), F32), Given((HIDDEN,), F32)),
        ),
    }
