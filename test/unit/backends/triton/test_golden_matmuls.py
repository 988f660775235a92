"""The text of a few generated modules, so that a change in codegen is seen in review.

``SHARDC_ACCEPT=1 pytest test/unit/backends/triton/test_golden_matmuls.py`` writes the files anew.
"""

import os
from pathlib import Path

import pytest
import torch

from .contractions import Case, emitted, emitted_attention
from .test_matrix_instructions import linear, normed

GOLDEN = Path(__file__).with_name("golden")


BLOCKS = {"forward_queries": 128, "forward_keys": 64, "forward_warps": 8, "forward_stages": 3}
TILES = (
    "block_m = 128 : i64, block_n = 128 : i64, block_k = 32 : i64, warps = 4 : i64, stages = 3 : i64, "
    "group = 8 : i64"
)


def attention_forward() -> str:
    case = Case(2, 8, 2, 1024, 1024, 64, 64, torch.bfloat16, causal=True, heads_last=True)
    return emitted_attention(case, config=BLOCKS)[0].text


def matmul() -> str:
    """Descriptors, and a program for each unit."""
    body = linear("matmul", 4096, 4096, 4096)
    body.config = f"{TILES}, persistent = 1 : i64"
    return emitted(body).text


def scaled_matmul() -> str:
    """Masks, and a factor that is computed in the tile."""
    body = normed("scaled_matmul", 1000, 777, 500)
    body.config = TILES
    return emitted(body, "sm_80").text


MODULES = {made.__name__: made for made in (attention_forward, matmul, scaled_matmul)}


@pytest.mark.parametrize("name", MODULES)
def test_text(name):
    text, path = MODULES[name](), GOLDEN / f"{name}.py"
    if os.environ.get("SHARDC_ACCEPT") == "1":
        path.write_text(text)
    assert text == path.read_text(), f"generated code has changed; SHARDC_ACCEPT=1 writes {path.name} anew"
