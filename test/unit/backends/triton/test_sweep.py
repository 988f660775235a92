"""A sample of the sweep of `test/bench/triton_code.py`: the same contracts, for another model each day. All
of it, for every target, is run by hand: `docs/triton_code.md`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import triton_code
from contracts import CONTRACTS, SPILLS, has_products, violations

from shardc.backends.triton.aot.compile import Compiled, Figures, compile_kernels
from shardc.backends.triton.emit.emitted import Emitted, Jit
from shardc.cost.kernel import Estimate
from shardc.cost.machine import GPUS

from .programs import SM_90

PAIRS = [(model, "sm_90") for model in ("llama", "bert", "gpt2", "vit")]
AT_MOST = 12
"""Kernels that a day's sample compiles: those with products first, which have the most to choose."""


@pytest.mark.slow
def test_kernels_of_the_day(tmp_path: Path) -> None:
    model, name = PAIRS[date.today().toordinal() % len(PAIRS)]
    (subject,) = (s for s in triton_code.subjects() if s.name == f"{model} bf16 even")
    target = GPUS[name]
    module = triton_code.fused(subject.make(), subject.lone, "generated")
    refused: dict[str, str] = {}
    made = sorted(
        triton_code.emitted(subject, module, target, True, refused),
        key=lambda m: (m.kind != "matmul", m.kind == "optimizer", m.emitted.name),
    )[:AT_MOST]
    assert not refused and "matmul" in {m.kind for m in made}
    named = [replace(m.emitted, name=f"{m.emitted.name}_{n}") for n, m in enumerate(made)]
    found = [violations(c, whole=True) for c in compile_kernels(named, [target], tmp_path) if c.error is None]
    assert len(found) == len(made)
    broken = {
        (m.emitted.name, c): said for m, f in zip(made, found, strict=True) for c, said in f.items() if said
    }
    assert not broken, (subject.name, name)


TEXT = """
@triton.jit
def {name}_sum(x):
    return tl.dot(x, x)


@triton.jit
def {name}(x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + at)
    tl.store(x_ptr + at, {call})
"""


GOOD = {
    "name": "f",
    "binary": "",
    "metadata": "",
    "num_warps": 4,
    "shared_bytes": 0,
    "registers": 32,
    "spill_bytes": 0,
    "local_accesses": 0,
    "loads": 2,
    "wide_loads": 2,
    "stores": 1,
    "wide_stores": 1,
    "matrix_ops": 0,
}


def test_what_breaks_a_contract() -> None:
    """Each is seen, and nothing else."""
    good = GOOD
    streams = TEXT.format(name="f", call="x")
    assert not any(violations(_compiled(streams, good), whole=True).values())
    bad = {"registers": 256, "spill_bytes": 8, "shared_bytes": 1 << 20, "local_accesses": 1, "wide_stores": 0}
    seen = set()
    for key, value in bad.items():
        broken = {
            c for c, said in violations(_compiled(streams, good | {key: value}), whole=True).items() if said
        }
        assert len(broken) == 1
        seen |= broken
    multiplies = TEXT.format(name="f", call="f_sum(x)")
    assert has_products(multiplies, "f") and not has_products(streams, "f")
    found = violations(_compiled(multiplies, good, "matmul"), whole=True)
    assert {c for c, said in found.items() if said} == {"matrix instructions"}
    assert seen | {"matrix instructions"} == {*CONTRACTS}


def test_matmuls_spill_no_more_than_twice_what_is_priced() -> None:
    """And 16 bytes of a barrier's state; functions without products spill nothing, whatever is priced."""
    multiplies, streams = TEXT.format(name="f", call="f_sum(x)"), TEXT.format(name="f", call="x")
    for text, priced, spilled, said in (
        (multiplies, 100, 216, []),
        (multiplies, 100, 217, ["f: 217 bytes, 100 priced"]),
        (multiplies, 0, 17, ["f: 17 bytes, 0 priced"]),
        (streams, 100, 1, ["f: 1 bytes, 100 priced"]),
    ):
        compiled = _compiled(text, GOOD | {"spill_bytes": spilled, "matrix_ops": 1}, "matmul", priced)
        assert violations(compiled, whole=True)[SPILLS] == said


def test_the_page_has_no_paths_of_a_machine() -> None:
    row = {
        "kind": "matmul",
        "target": "sm_90",
        "subject": "a model",
        "functions": [],
        "error": "",
        "contracts": {SPILLS: ["f: 17 bytes, 0 priced"]},
    }
    places = {
        "/a/test/b/test/gpu/models.py:52": "test/gpu/models.py:52",
        "/home/x/shardc/test/gpu/models.py:52": "test/gpu/models.py:52",
        f"{triton_code.ROOT}/test/bench/whole_models.py:102": "test/bench/whole_models.py:102",
        "/x/test/lib/python3.11/site-packages/transformers/models/t5/modeling_t5.py:84": "transformers/models/t5/modeling_t5.py:84",  # noqa: E501
    }
    for title, shown in places.items():
        rows = [
            row | {"title": f"f: mm. From {title}."},
            row | {"title": f"f: mm. From {title}.", "contracts": {}, "error": "bad"},
        ]
        page = triton_code.table(rows, {}, ["a model"], [SM_90], Counter())
        assert page.count(f"(a model: f: mm. From {shown}.)") == 2, page


def _compiled(text: str, figures: dict[str, object], kind: str = "pointwise", priced: int = 0) -> Compiled:
    functions = (Jit("f", {}, {"BLOCK": 128}, (), 4, 2),)
    estimate = Estimate(1e-6, 0, 1e12, 0, 1e12, priced)
    kernel = Emitted("f", re.sub(r"\A\n", "", text), functions, kind=kind, estimate=estimate)
    return Compiled(kernel, SM_90, (Figures(**figures),))
