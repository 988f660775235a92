"""One operator of PyTorch's ``op_db`` under ``torch.compile(backend="shardc")`` next to eager: forward,
gradient, in place.

A call is compared with eager's in its results, its gradients, what it wrote to its inputs, and which of its
results share memory with which of its inputs. Where it differs or raises, the same call through ``aot_eager``
(Dynamo and AOTAutograd without shardc) says whose fault that is.
"""

from __future__ import annotations

import copy
import itertools
import random
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

from shardc.compiler.warn_once import warned
from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.dynamo import compile_graph as graph_compiler

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
"""Ops whose values mean nothing: only shapes, dtypes and strides are compared."""

AMONG = 24
"""Samples are taken evenly from this many first ones."""

OUTCOMES = {
    "compiled": "all graphs run as shardc's programs",
    "partly": "some do, the others through ATen with a diagnostic",
    "fell back": "none does; each says why in a diagnostic",
    "no graph": "Dynamo hands no graph to a backend, or eager refuses the call",
    "PyTorch differs": "from eager; aot_eager, which is PyTorch without shardc, does in the same way",
    "PyTorch raises": "where eager does not; aot_eager raises the same",
    "wrong": "other than eager",
    "error": "raises where eager does not",
    "timeout": "not done in time",
    "crash": "the process died",
}
FAILURES = ("wrong", "error", "timeout", "crash")
BAD = ("crash", "timeout", "error", "wrong", "PyTorch raises", "PyTorch differs")
"""Outcomes that are an op's as soon as one call has them, the worst first."""


@dataclass
class Verdict:
    """What came of one call: one of OUTCOMES, its cause in words, and which call it was."""

    outcome: str
    cause: str = ""
    call: str = ""


@dataclass
class _Seen:
    """All that a caller can see of one call: flat results, gradients, inputs afterwards, which
    share memory.
    """

    results: list[Any]
    grads: list[torch.Tensor | None]
    inputs: list[Any]
    shared: list[tuple[int, ...]]
    random: bool = False


@dataclass
class _Graphs:
    """What the backend did with the graphs of one call."""

    compiled: int = 0
    refused: list[str] = field(default_factory=list)


def check_op(op: OpInfo, samples: int = 2, budget_s: float = 10.0) -> Iterator[Verdict]:
    """A verdict on each of a few calls in each dtype; stops when ``budget_s`` of the processor are over."""
    end = time.process_time() + budget_s
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        taken = samples if dtype is torch.float32 else 1
        differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        for number, sample in _samples(op, dtype, taken, differentiable):
            yield _check(op, sample, f"{_short(dtype)} sample {number}", differentiable)
            if time.process_time() > end:
                return
        if dtype is torch.float32 and op.inplace_variant is not None:
            for number, sample in _samples(op, dtype, 1, differentiable=False):
                if not sample.broadcasts_input:
                    yield _check(
                        op, sample, f"{_short(dtype)} sample {number} in place", False, op.inplace_variant
                    )


def _samples(
    op: OpInfo, dtype: torch.dtype, count: int, differentiable: bool
) -> Iterator[tuple[int, SampleInput]]:
    torch.manual_seed(0)
    random.seed(0)
    some = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=differentiable), AMONG))
    chosen = sorted({round((i + 0.5) * len(some) / count - 0.5) for i in range(count)}) if some else []
    yield from ((i, some[i]) for i in chosen if i < len(some))


def _check(
    op: OpInfo, sample: SampleInput, call: str, grad: bool, function: Callable[..., Any] | None = None
) -> Verdict:
    function = function or op.op
    args = (sample.input, *sample.args)

    def run(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def see(run: Callable[..., Any], seed: int = 0, wide: bool = False) -> _Seen:
        return _see(run, args, sample, grad, seed, wide)

    try:
        expected = see(run)
        other = see(run, seed=1)
    except Exception as error:
        return Verdict("no graph", f"eager itself refuses: {_line(error)}", call)
    expected.random = _difference(other, expected) != ""
    graphs = _Graphs()
    try:
        found = _compiled(see, run, graphs)
    except Exception as error:
        return _failed(error, see, run, call)
    difference = _difference(found, expected, values=op.name not in UNINITIALISED)
    if difference:
        return _differs(difference, found, expected, see, run, call)
    if graphs.refused:
        return Verdict(
            "partly" if graphs.compiled else "fell back", "; ".join(dict.fromkeys(graphs.refused)), call
        )
    return Verdict(
        "compiled" if graphs.compiled else "no graph",
        "" if graphs.compiled else "Dynamo hands no graph over",
        call,
    )


def _is_no_worse(see: Callable[..., _Seen], run: Callable[..., Any], found: _Seen, expected: _Seen) -> bool:
    """Whether a call in low precision is as near as eager's to eager's in f64:
    PyTorch's decomposition rounds otherwise.
    """
    tensors = [t for t in (*expected.results, *expected.grads) if isinstance(t, torch.Tensor)]
    if any(t.dtype != torch.bfloat16 for t in tensors):
        return False
    exact = see(run, wide=True)
    for what in ("results", "grads"):
        for a, b, c in zip(getattr(found, what), getattr(expected, what), getattr(exact, what), strict=True):
            if a is None and b is None:
                continue
            if a is None or b is None or (a.double() - c).abs().max() > 1.5 * (b.double() - c).abs().max():
                return False
    return True


def _see(
    run: Callable[..., Any], args: tuple[Any, ...], sample: SampleInput, grad: bool, seed: int, wide: bool
) -> _Seen:
    given, kwargs = _copied((args, sample.kwargs), wide)
    inputs = pytree.tree_leaves((given, kwargs))
    torch.manual_seed(seed)
    with torch.set_grad_enabled(grad):
        output = run(*given, **kwargs)
    results = pytree.tree_leaves(output)
    grads: list[torch.Tensor | None] = []
    if grad:
        output = sample.output_process_fn_grad(output)
        roots = [r for r in pytree.tree_leaves(output) if isinstance(r, torch.Tensor) and r.requires_grad]
        leaves = [a for a in inputs if isinstance(a, torch.Tensor) and a.requires_grad]
        if roots and leaves:
            grads = list(
                torch.autograd.grad(roots, leaves, [_weights(r, wide) for r in roots], allow_unused=True)
            )
    shared = [
        tuple(i for i, a in enumerate(inputs) if _address(r) and _address(a) == _address(r)) for r in results
    ]
    return _Seen(results, grads, inputs, shared)


def _copied(tree: Any, wide: bool) -> Any:
    """Leaves that share memory where the originals do, with their strides; ``wide``: bf16 as f64."""
    flat, spec = pytree.tree_flatten(tree)
    plain = [x.detach() if isinstance(x, torch.Tensor) else x for x in flat]
    plain = [x.clone() if isinstance(x, torch.Tensor) and x.layout is not torch.strided else x for x in plain]
    dense = copy.deepcopy(
        {i: x for i, x in enumerate(plain) if getattr(x, "layout", torch.strided) is torch.strided}
    )
    plain = [dense.get(i, x) for i, x in enumerate(plain)]
    if wide:
        plain = [
            x.double() if isinstance(x, torch.Tensor) and x.dtype is torch.bfloat16 else x for x in plain
        ]
    for new, old in zip(plain, flat, strict=True):
        if isinstance(old, torch.Tensor) and old.requires_grad:
            new.requires_grad_()
    return pytree.tree_unflatten(plain, spec)


def _weights(root: torch.Tensor, wide: bool) -> torch.Tensor:
    """The gradient of ``root``; ``wide``: the numbers that a root in bf16 is given."""
    weights = torch.linspace(0.5, 1.5, root.numel(), dtype=torch.float64).reshape(root.shape)
    weights = torch.complex(weights, 1 - weights) if root.is_complex() else weights
    return (weights.bfloat16() if wide else weights).to(root.dtype)


def _address(value: Any) -> int:
    """Where the memory of a tensor begins; 0 for none."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return 0
    return value.untyped_storage().data_ptr()


def _compiled(see: Callable[..., _Seen], run: Callable[..., Any], graphs: _Graphs) -> _Seen:
    """The call through the backend, which must say each cause for which it leaves a graph to ATen."""
    inner = graph_compiler.compile_graph

    def record(*arguments: Any) -> Any:
        try:
            program = inner(*arguments)
        except Exception as error:
            graphs.refused.append(_reason(error))
            raise
        graphs.compiled += 1
        return program

    torch._dynamo.reset()
    warned.clear()
    traced = torch._functorch.config.patch(
        enable_autograd_cache=False
    )  # every graph is to pass through the compiler
    with (
        traced,
        mock.patch.object(graph_compiler, "compile_graph", record),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        found = see(torch.compile(run, backend="shardc", dynamic=False))
    said = [w for w in caught if issubclass(w.category, ShardcFallbackWarning)]
    if bool(said) != bool(graphs.refused) and said:
        graphs.refused.extend(str(w.message).partition("\n")[0] for w in said)
    assert bool(said) == bool(graphs.refused), f"a graph fell back without a word: {graphs.refused}"
    return found


def _reason(error: Exception) -> str:
    fields = getattr(error, "fields", {})
    return (
        f"{fields['op']}: {fields['reason']}" if "op" in fields else f"{type(error).__name__}: {_line(error)}"
    )


def _failed(error: Exception, see: Callable[..., _Seen], run: Callable[..., Any], call: str) -> Verdict:
    torch._dynamo.reset()
    try:
        see(torch.compile(run, backend="aot_eager", dynamic=False))
    except Exception as theirs:
        if type(theirs) is type(error):
            return Verdict("PyTorch raises", _line(error), call)
    return Verdict("error", _line(error), call)


def _differs(
    difference: str,
    found: _Seen,
    expected: _Seen,
    see: Callable[..., _Seen],
    run: Callable[..., Any],
    call: str,
) -> Verdict:
    torch._dynamo.reset()
    theirs = see(torch.compile(run, backend="aot_eager", dynamic=False))
    theirs.random = expected.random
    if "not close" in difference and _is_no_worse(see, run, found, expected):
        return Verdict("compiled", "", call)
    if _difference(theirs, expected) and not _difference(found, theirs):
        return Verdict("PyTorch differs", difference, call)
    return Verdict("wrong", difference, call)


def _difference(found: _Seen, expected: _Seen, values: bool = True) -> str:
    """Where two calls differ, in words; empty if nowhere. Random ops are compared in shape, dtype
    and stride.
    """
    if found.shared != expected.shared:
        return f"results share memory with inputs {found.shared}, in eager {expected.shared}"
    values = values and not expected.random
    for what in ("results", "grads", "inputs"):
        ours, theirs = getattr(found, what), getattr(expected, what)
        if len(ours) != len(theirs):
            return f"{len(ours)} {what}, in eager {len(theirs)}"
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if what == "inputs" and not isinstance(b, torch.Tensor):
                continue
            problem = _unequal(a, b, values, strides=what != "grads")
            if problem:
                return f"{what}[{number}]: {problem}"
    return ""


def _unequal(a: Any, b: Any, values: bool, strides: bool) -> str:
    if not isinstance(b, torch.Tensor) or not isinstance(a, torch.Tensor):
        same = type(a) is type(b) and (
            a == b or a != a or (not values and isinstance(a, int | float | complex))
        )
        return "" if same else f"{a!r}, in eager {b!r}"[:160]
    if (a.shape, a.dtype, a.layout) != (b.shape, b.dtype, b.layout):
        return f"{a.dtype}{list(a.shape)}, in eager {b.dtype}{list(b.shape)}"
    if strides and b.layout is torch.strided and _strides(a) != _strides(b):
        return f"strides {a.stride()}, in eager {b.stride()} of {list(b.shape)}"
    if a.requires_grad != b.requires_grad:
        return f"requires_grad is {a.requires_grad}, in eager {b.requires_grad}"
    if values:
        try:
            torch.testing.assert_close(a, b, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split())[:160]
    return ""


def _strides(x: torch.Tensor) -> tuple[int, ...]:
    """Those that address anything."""
    return tuple(s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1) if x.numel() else ()


def _line(error: Exception) -> str:
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}"[:200]


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
