"""The least time of a problem: its bytes at the copy rate, or its library products in the best layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from problems import tensors
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
PRODUCTS = {
    aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.mv, aten.dot,
    aten.convolution, aten.convolution_backward,
}  # fmt: skip
REPEATS = 5


class _Products(TorchDispatchMode):
    """Keeps the calls of products with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket in PRODUCTS:
            self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def bound(
    model: nn.Module, inputs: Sequence[Any], backward: bool, clock: Callable[[], float]
) -> dict[str, float]:
    """Seconds: ``copy``, bytes of inputs, parameters, results (and gradients) at the rate of ``Tensor.copy_``
    on as many threads; ``products``, the sum of each product's best time, as the layout is and channels last,
    by oneDNN and without. The bound is the larger one.
    """
    held = [t for t in (*model.parameters(), *tensors(list(inputs)))]
    leaves = [
        v.detach().requires_grad_() if isinstance(v, Tensor) and v.is_floating_point() else v for v in inputs
    ]
    with torch.set_grad_enabled(backward), _Products() as products:
        made = tensors(model(*(leaves if backward else inputs)))
        if backward:
            asked = [t for t in (*model.parameters(), *tensors(leaves)) if t.requires_grad]
            torch.autograd.grad(made, asked, [torch.randn_like(t) for t in made], allow_unused=True)
    moved = sum(t.nbytes for t in held) * (2 if backward else 1) + sum(t.nbytes for t in made)
    with torch.no_grad():
        best = sum(_best(func, args, kwargs, clock) for func, args, kwargs in products.calls)
    return {"copy": moved / _copy_rate(clock), "products": best}


def _copy_rate(clock: Callable[[], float]) -> float:
    """Bytes per second, read and written ones together."""
    source = torch.randn(1 << 24)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _seconds(lambda: target.copy_(source), clock)


def _best(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], clock: Callable[[], float]) -> float:
    times: list[float] = []
    for form in (None, torch.channels_last, torch.channels_last_3d):
        rank = {None: None, torch.channels_last: 4, torch.channels_last_3d: 5}[form]
        if form is not None and not any(t.dim() == rank for t in tensors(list(args))):
            continue
        moved = [_in_form(v, rank, form) for v in args]
        for onednn in (True, False):
            with torch.backends.mkldnn.flags(enabled=onednn):
                times.append(_seconds(partial(func, *moved, **kwargs), clock))
    return min(times)


def _in_form(value: Any, rank: int | None, form: Any) -> Any:
    if form is not None and isinstance(value, Tensor) and value.dim() == rank:
        return value.contiguous(memory_format=form)
    return value


def _seconds(call: Callable[[], object], clock: Callable[[], float]) -> float:
    call()
    times: list[float] = []
    for _ in range(REPEATS):
        start = clock()
        call()
        times.append(clock() - start)
    return median(times)
