"""Everything that a caller can observe of a program, in its own dtypes or in f64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .program import Program, Tensor


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


def see(
    program: Program,
    run: Callable[..., Sequence[Tensor]],
    call: int = 0,
    given: list[Tensor] | None = None,
    marked: Set[int] = frozenset(),
) -> Seen:
    """One call and its backward; dims of the first call's sizes ``marked`` are marked as dynamic."""
    inputs = [i.detach() for i in (given or program.inputs(call))]
    for i, g in zip(inputs, program.given, strict=True):
        i.requires_grad_(g.differentiated)
        for d in (d for d, n in enumerate(g.shape) if n in marked):
            torch._dynamo.maybe_mark_dynamic(i, d)
    results = list(run(*inputs))
    roots = [r for r in results if r.requires_grad]
    leaves = [i for i in inputs if i.requires_grad]
    grads: list[Any] = []
    if roots and leaves:
        grads = list(torch.autograd.grad(roots, leaves, [_weights(r) for r in roots], allow_unused=True))
    everything = [*inputs, *results]
    shared = [tuple(n for n, t in enumerate(everything) if _memory(t) == _memory(r)) for r in results]
    return Seen([r.detach() for r in results], grads, [i.detach() for i in inputs], shared)


def in_f64(program: Program, call: int = 0, nudge: float = 0.0, seed: int = 0) -> Seen:
    """In f64 throughout; ``nudge`` moves all inputs of floats, and what each op makes, by that part of
    themselves.
    """
    inputs = [_widened(i) for i in program.inputs(call)]
    mode: AbstractContextManager[Any] = nullcontext()
    if nudge:
        mode = _Nudged(nudge, seed)
        inputs = [mode.moved(i) if i.is_floating_point() else i for i in inputs]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with mode:
            return see(program, program.function(wide=True), call, inputs)
    finally:
        torch.set_default_dtype(before)


class _Nudged(TorchDispatchMode):
    """Rounding errors of a coarser precision, drawn, in all that ops make that is no view."""

    def __init__(self, nudge: float, seed: int) -> None:
        super().__init__()
        self.nudge, self.drawn = nudge, torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if any(r.alias_info for r in func._schema.returns):
            return made
        return pytree.tree_map_only(Tensor, lambda t: self.moved(t) if t.is_floating_point() else t, made)

    def moved(self, x: Tensor) -> Tensor:
        """With the strides that it has."""
        noise = torch.empty_like(x).normal_(generator=self.drawn)
        return x * (1 + self.nudge * noise)


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
