"""Check of a random program's results under ``torch.compile`` against eager, and eager in f64."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from shardc.backends.eager.proof.tolerance import difference, magnitude, own_precision, wide
from shardc.compiler.warn_once import warned
from shardc.diagnostics.dynamo import ShardcFallbackWarning

from .how import How
from .program import Program, Tensor
from .seen import Seen, in_f64, see

FLOOR = 0.05
"""Of the largest number of a program: what cancels out, such as a gradient of 0, has that number's rounding
errors.
"""
NUDGES = 3
"""How often rounding errors are drawn to see what a program makes of such."""
REFUSED = (RuntimeError, IndexError, ValueError, TypeError)
"""What eager raises for sizes that a program does not fit."""
BROKEN = ("KernelNotCompiled", "GraphFailed")
"""Causes of falling back that no program may have; the others say what is not there yet."""


def problem(program: Program, how: How, refusals: list[str] | None = None) -> str:
    """Where the compiled program differs from eager, in words; empty if nowhere.
    ``refusals`` takes why graphs fell back.
    """
    torch._dynamo.reset()
    warned.clear()
    settings = {"rounding": how.rounding, "matmuls": how.matmuls}
    run = torch.compile(program.function(), backend="shardc", dynamic=how.is_dynamic, options=settings)
    for call in how.calls:
        found = _problem_of_call(program, how, run, call, [] if refusals is None else refusals)
        if found is None:
            return ""
        if found:
            return f"call {call}: {found}" if call else found
    return ""


def _problem_of_call(
    program: Program, how: How, run: Callable[..., tuple[Tensor, ...]], call: int, refusals: list[str]
) -> str | None:
    """As :func:`problem`; None if PyTorch without shardc does the same, after which no call says anything."""
    try:
        eager = see(program, program.function(), call)
        exact = in_f64(program, call)
    except REFUSED:
        return ""  # not a program for these sizes
    with _threads(how.threads), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = see(program, run, call, marked=how.marked(program))
        except Exception as error:
            text = f"raises {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            return text if _pytorchs(program, how, call) else None
    said = [str(w.message) for w in caught if issubclass(w.category, ShardcFallbackWarning)]
    if broken := [text for text in said if text.startswith(BROKEN)]:
        return broken[0].replace(chr(10), " ")
    refusals += said
    differs = _differs(found, eager, exact, program)
    if not differs or _is_fragile(program, call, found, eager, exact):
        return ""
    theirs = _pytorchs(program, how, call)
    return differs if theirs is None or _differs(found, theirs, exact, program) else None


def _pytorchs(program: Program, how: How, call: int) -> Seen | None:
    """What AOTAutograd gives without shardc after the same calls; None if it raises."""
    torch._dynamo.reset()
    run = torch.compile(program.function(), backend="aot_eager", dynamic=how.is_dynamic)
    try:
        seen = [
            see(program, run, n, marked=how.marked(program)) for n in _fitting(program, how.calls[: call + 1])
        ]
    except Exception:  # whatever it is, it is not ours
        return None
    return seen[-1]


def _fitting(program: Program, calls: Iterable[int]) -> Iterator[int]:
    """Calls with sizes that eager takes."""
    for call in calls:
        try:
            see(program, program.function(), call)
        except REFUSED:
            continue
        yield call


def _differs(found: Seen, eager: Seen, exact: Seen, program: Program) -> str:
    if found.shared != eager.shared:
        return f"results share memory with {found.shared}, in eager {eager.shared}"
    for (name, ours), (_, theirs), (_, reference) in zip(
        found.tensors(), eager.tensors(), exact.tensors(), strict=True
    ):
        if ours is None or theirs is None or reference is None:
            if ours is not theirs:
                return f"{name} is {ours}, in eager {theirs}"
            continue
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            return f"{name} is {ours.dtype}{list(ours.shape)}, in eager {theirs.dtype}{list(theirs.shape)}"
        if name[0] == "r" and _strides(ours) != _strides(theirs):
            return f"{name} has strides {ours.stride()}, in eager {theirs.stride()}, of {list(ours.shape)}"
        if not theirs.is_floating_point():
            if not torch.equal(ours, theirs):
                return f"{name} differs in {int((ours != theirs).sum())} of {ours.numel()} elements"
            continue
        if kinds := _other_kinds(ours, theirs, reference):
            return f"{name} has {kinds} elements that are infinite or NaN otherwise than in eager"
        allowed = _allowed(program, exact, theirs, reference)
        gap = difference(_finite(ours, theirs, reference), _finite(reference, theirs, reference))
        if not gap <= allowed:
            return (
                f"{name} is off by {gap:.3g}, more than {allowed:.3g}; the largest is "
                f"{magnitude(reference):.3g}"
            )
    return ""


def _allowed(program: Program, exact: Seen, theirs: Tensor, reference: Tensor) -> float:
    largest = max(magnitude(t) for _, t in exact.tensors() if t is not None)
    eager = difference(_finite(theirs, theirs, reference), _finite(reference, theirs, reference))
    return own_precision(_coarsest(program)).relative * max(magnitude(reference), FLOOR * largest) + 4 * eager


def _coarsest(program: Program) -> torch.dtype:
    return max(
        (d for d in program.dtypes if d.is_floating_point),
        key=lambda d: torch.finfo(d).eps,
        default=torch.float32,
    )


def _finite(x: Tensor, theirs: Tensor, reference: Tensor) -> Tensor:
    """0 where eager or the reference is not finite, or ``x`` is not though they do not agree."""
    return torch.where(theirs.isfinite() & reference.isfinite(), wide(x), 0.0)


def _other_kinds(ours: Tensor, theirs: Tensor, reference: Tensor) -> int:
    """In how many elements ours are infinities or NaN other than eager's, where eager's are those of f64."""
    kinds = [
        torch.where(t.isnan(), 3, torch.where(t.isposinf(), 2, torch.where(t.isneginf(), 1, 0)))
        for t in (ours, theirs, reference)
    ]
    return int(((kinds[0] != kinds[1]) & (kinds[1] == kinds[2])).sum())


def _strides(x: Tensor) -> tuple[int, ...]:
    """Those that address anything."""
    return tuple(s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1) if x.numel() else ()


def _is_fragile(program: Program, call: int, found: Seen, eager: Seen, exact: Seen) -> bool:
    """Whether rounding errors in the inputs alone change the exact program as much as it differs:
    a kink, or digits that cancel.
    """
    if _differs(replace(found, results=eager.results, grads=eager.grads), eager, exact, program):
        return False
    nudged = [in_f64(program, call, torch.finfo(_coarsest(program)).eps, seed) for seed in range(NUDGES)]
    seen = [found, eager, exact, *nudged]
    for (name, ours), (_, theirs), (_, reference), *others in zip(*(s.tensors() for s in seen), strict=True):
        if ours is None or theirs is None or reference is None:
            continue
        if ours.dtype != theirs.dtype or (name[0] == "r" and _strides(ours) != _strides(theirs)):
            return False
        exactly = _finite(reference, theirs, reference)
        gap = difference(_finite(ours, theirs, reference), exactly)
        sway = max(difference(_finite(o, theirs, reference), exactly) for _, o in others if o is not None)
        if not gap <= 8 * sway + _allowed(program, exact, theirs, reference):
            return False
    return True


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
