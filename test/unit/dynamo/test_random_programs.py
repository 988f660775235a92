"""Random programs of all kinds of ops through ``torch.compile``: results, gradients, layouts, what is
written, what shares memory.

``SHARDC_RANDOM_PROGRAMS=5000 pytest test/unit/dynamo/test_random_programs.py`` tries so many;
``SHARDC_RANDOM_FIRST=7000`` says which is the first; ``SHARDC_RANDOM_SIZES`` is a kind of sizes for all of
them: ``static``, ``forced`` (sizes that change from call to call) or one of ``random_programs/how.py``. A
program that fails is reduced and printed.
"""

from __future__ import annotations

import os

import pytest
import torch

from .random_programs.check import problem
from .random_programs.draw import draw
from .random_programs.how import How, drawn_how
from .random_programs.program import Given, Program
from .random_programs.reduce import reduced
from .random_programs.seen import see

FIRST = int(os.environ.get("SHARDC_RANDOM_FIRST", "0"))
COUNT = int(os.environ.get("SHARDC_RANDOM_PROGRAMS", "40"))
SIZES = os.environ.get("SHARDC_RANDOM_SIZES", "")
FORCED = 8
"""Programs after those, in the ordinary suite, whose sizes change from call to call."""


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))


@pytest.mark.sampled(1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_random_program(seed: int) -> None:
    _check(seed, drawn_how(seed, SIZES))


@pytest.mark.sampled(1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(FIRST + COUNT, FIRST + COUNT + FORCED))
def test_a_random_program_with_sizes_that_change(seed: int) -> None:
    _check(seed, drawn_how(seed, "forced"))


def _check(seed: int, how: How) -> None:
    program = draw(seed)
    found = problem(program, how)
    if found:
        program = reduced(program, lambda p: _runs(p) and _kind(problem(p, how)) == _kind(found))
        pytest.fail(f"{how}: {problem(program, how)}\n{program!r}\n{program}")


def _runs(program: Program) -> bool:
    try:
        see(program, program.function())
    except Exception:  # a line is missing that others need
        return False
    return True


def _kind(text: str) -> str:
    """A problem less its numbers."""
    return " ".join("".join(c if c.isalpha() or c == "_" else " " for c in text).split()[:6])


def test_the_check_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """In numbers, gradients, layouts, dtypes, what is written and what shares memory; and what raises."""
    given = (Given((5, 7), "f32", "contiguous", differentiated=True),)
    program = Program(0, given, ("v1 = v0.tanh()", "v2 = v1.mT * 2"), ("v2",), (torch.float32,))
    right = program.function()
    wrong = {
        "results[0] is off": lambda x: (right(x)[0] * 1.01,),
        "grads[0] is off": lambda x: (right(x)[0].detach() + 0 * right(x)[0],),
        "results[0] has strides": lambda x: (right(x)[0].contiguous(),),
        "inputs[0] is off": lambda x: (right(x)[0], x.detach().mul_(2))[:1],
        "results share memory": lambda x: (x.view(7, 5),),
        "results[0] is torch.float64": lambda x: (right(x)[0].double(),),
        "raises RuntimeError: no": lambda x: (_ for _ in ()).throw(RuntimeError("no")),
    }
    for expected, function in wrong.items():
        monkeypatch.setattr(
            torch,
            "compile",
            lambda f, backend, function=function, **_: function if backend == "shardc" else f,
        )
        assert problem(program, How()).startswith(expected)
    monkeypatch.setattr(torch, "compile", lambda *_, **__: right)
    assert problem(program, How()) == ""


def test_what_cancels_out_may_have_rounding_errors() -> None:
    """The gradient of the variance of one number is 0 in eager, and its rounding error where that is kept in
    f32.
    """
    given = (Given((1,), "f16", "contiguous", differentiated=True),)
    lines = ("v1 = F.silu(v0 + 2)", 'v2 = F.gelu(v1, approximate="tanh")', "v3 = F.gelu(v2)")
    program = Program(
        60152, given, (*lines, "v4 = v3.var((0,), correction=0)"), ("v4",), (torch.float16, torch.float32)
    )
    assert problem(program, How("fused", "dynamic", matmuls="generated")) == ""


def test_a_failing_program_is_reduced() -> None:
    """To the line that is at fault, with the plainest inputs."""
    programs = (draw(seed) for seed in range(1000))
    program = next(p for p in programs if len(p.lines) > 5 and any(".exp()" in line for line in p.lines[:4]))
    small = reduced(program, lambda p: _runs(p) and any(".exp()" in line for line in p.lines))
    assert len(small.lines) == 1 and ".exp()" in small.lines[0]
    assert all(g.layout == "contiguous" and not g.differentiated for g in small.given)
