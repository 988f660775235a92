"""What a random program gives under ``torch.compile``, held against eager and eager in f64."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from shardc.backends.eager.tolerance import difference, magnitude, own_precision, wide
from shardc.diagnostics.dynamo import ShardcFallbackWarning

from .random_programs import Program, Tensor

FLOOR = 0.05
"""Of the largest number of a program: what cancels out, such as a gradient of 0, has that number's rounding errors."""
NUDGES = 3
"""How often inputs are moved by rounding errors to see what a program makes of such."""


@dataclass
class Seen:
    """All that a caller sees of one call: results, gradients, inputs afterwards,
    which of the results share memory with what.
    """

    results: list[Tensor]
    grads: list[Tensor | None]
    inputs: list[Tensor]
    shared: list[tuple[int, ...]]

    def tensors(self) -> Iterator[tuple[str, Tensor | None]]:
        for kind in ("results", "grads", "inputs"):
            for number, tensor in enumerate(getattr(self, kind)):
                yield f"{kind}[{number}]", tensor


@dataclass(frozen=True)
class How:
    """How a program is compiled and run."""

    numerics: str = "fused"
    dynamic: bool = False
    threads: int = 1
    matmuls: str = "measured"


def drawn_how(seed: int) -> How:
    """How the program of a number is run."""
    r = random.Random(seed)
    numerics, dynamic, threads = r.choice(("fused", "eager")), r.random() < 0.2, r.choice((1, 1, 2))
    return How(numerics, dynamic, threads, r.choice(("measured", "generated", "generated", "extern")))


BROKEN = ("KernelNotCompiled", "GraphFailed")
"""Causes of falling back that no program may have; the others say what is not there yet."""


def problem(program: Program, how: How, refusals: list[str] | None = None) -> str:
    """Where the compiled program differs from eager, in words; empty if nowhere.
    ``refusals`` takes why graphs fell back.
    """
    torch._dynamo.reset()
    settings = {"numerics": how.numerics, "matmuls": how.matmuls}
    run = torch.compile(program.function(), backend="shardc", dynamic=how.dynamic, options=settings)
    for other in (False, True) if how.dynamic else (False,):
        try:
            eager = see(program, program.function(), other)
            exact = in_f64(program, other)
        except (RuntimeError, IndexError, ValueError):
            return ""  # not a program for these sizes
        with _threads(how.threads), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found = see(program, run, other)
            except Exception as error:
                return f"raises {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        said = [str(w.message) for w in caught if issubclass(w.category, ShardcFallbackWarning)]
        if broken := [text for text in said if text.startswith(BROKEN)]:
            return broken[0].replace(chr(10), " ")
        if refusals is not None:
            refusals += said
        differs = _differs(found, eager, exact, program)
        if (
            differs
            and not _is_pytorchs(program, how, other, found, exact)
            and not _is_fragile(program, other, found, eager, exact)
        ):
            return f"other sizes: {differs}" if other else differs
    return ""


def _is_pytorchs(program: Program, how: How, other: bool, found: Seen, exact: Seen) -> bool:
    """Whether AOTAutograd without shardc gives the same."""
    torch._dynamo.reset()
    run = torch.compile(program.function(), backend="aot_eager", dynamic=how.dynamic)
    if other:
        see(program, run)
    try:
        return not _differs(found, see(program, run, other), exact, program)
    except Exception:  # it refuses what ours takes
        return False


def see(
    program: Program, run: Callable[..., Sequence[Tensor]], other: bool = False, given: list[Tensor] | None = None
) -> Seen:
    """One call and its backward."""
    inputs = [i.detach() for i in (given or program.inputs(other))]
    for i, g in zip(inputs, program.given, strict=True):
        i.requires_grad_(g.differentiated)
    results = list(run(*inputs))
    roots = [r for r in results if r.requires_grad]
    leaves = [i for i in inputs if i.requires_grad]
    grads: list[Any] = []
    if roots and leaves:
        grads = list(torch.autograd.grad(roots, leaves, [_weights(r) for r in roots], allow_unused=True))
    everything = [*inputs, *results]
    shared = [tuple(n for n, t in enumerate(everything) if _memory(t) == _memory(r)) for r in results]
    return Seen([r.detach() for r in results], grads, [i.detach() for i in inputs], shared)


def in_f64(program: Program, other: bool = False, nudge: float = 0.0, seed: int = 0) -> Seen:
    """In f64 throughout; ``nudge`` moves all inputs of floats by that part of themselves."""
    inputs = [_widened(i) for i in program.inputs(other)]
    if nudge:
        g = torch.Generator().manual_seed(seed)
        inputs = [_moved(i, nudge, g) if i.is_floating_point() else i for i in inputs]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return see(program, program.function(wide=True), other, inputs)
    finally:
        torch.set_default_dtype(before)


def _moved(x: Tensor, nudge: float, g: torch.Generator) -> Tensor:
    return x * (1 + nudge * torch.randn(x.shape, generator=g, dtype=x.dtype))


def _widened(x: Tensor) -> Tensor:
    """With the strides that it has, for they decide what shares memory."""
    if not x.is_floating_point():
        return x
    if 0 in x.stride():
        return x.double().as_strided(x.shape, x.double().stride()) if 0 not in x.shape else x.double()
    return x.double()


def _weights(root: Tensor) -> Tensor:
    return torch.linspace(0.5, 1.5, root.numel()).reshape(root.shape).to(root.dtype)


def _memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr() if x.numel() else 0


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
            return f"{name} is off by {gap:.3g}, more than {allowed:.3g}; the largest is {magnitude(reference):.3g}"
    return ""


def _allowed(program: Program, exact: Seen, theirs: Tensor, reference: Tensor) -> float:
    largest = max(magnitude(t) for _, t in exact.tensors() if t is not None)
    eager = difference(_finite(theirs, theirs, reference), _finite(reference, theirs, reference))
    return own_precision(_coarsest(program)).relative * max(magnitude(reference), FLOOR * largest) + 4 * eager


def _coarsest(program: Program) -> torch.dtype:
    return max(
        (d for d in program.dtypes if d.is_floating_point), key=lambda d: torch.finfo(d).eps, default=torch.float32
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


def _is_fragile(program: Program, other: bool, found: Seen, eager: Seen, exact: Seen) -> bool:
    """Whether rounding errors in the inputs alone change the exact program as much as it differs:
    a kink, or digits that cancel.
    """
    if _differs(replace(found, results=eager.results, grads=eager.grads), eager, exact, program):
        return False
    nudged = [in_f64(program, other, torch.finfo(_coarsest(program)).eps, seed) for seed in range(NUDGES)]
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
