"""Numbers of a param group that stay inputs of the step while ``optimizer.step()`` is traced.

A ``ScheduledFloat`` compares like its present number, so ``if momentum != 0`` takes its present branch. It
computes like its 0-d tensor, so that everything computed from it follows a scheduler.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

T = TypeVar("T")


class ScheduledFloat(float):
    """A float with a 0-d tensor of the same value; arithmetic returns the same kind, or a tensor."""

    tensor: torch.Tensor
    # Optimizers compute `1 - beta` again for every parameter; one node of the graph suffices.
    _memo: dict[object, tuple[Any, object]]

    def __new__(cls, value: float, tensor: torch.Tensor) -> ScheduledFloat:
        self = super().__new__(cls, value)
        self.tensor = tensor
        self._memo = {}
        return self

    def __neg__(self) -> ScheduledFloat:
        return self._once("neg", None, lambda: ScheduledFloat(-float(self), -self.tensor))

    def __pos__(self) -> ScheduledFloat:
        return self

    def cast(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the tensor in another dtype, for ops that do not promote."""
        return self._once("cast", dtype, lambda: self.tensor.to(dtype))

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield its own tensor, and the cached tensors computed from it."""
        yield self.tensor
        for made, _ in self._memo.values():
            if isinstance(made, ScheduledFloat):
                yield from made.tensors()
            elif isinstance(made, torch.Tensor):
                yield made

    def _once(self, name: str, other: object, make: Callable[[], T]) -> T:
        key = (name, id(other) if isinstance(other, ScheduledFloat) else other)
        if key not in self._memo:
            # The entry keeps `other` alive, so that its id is not reused.
            self._memo[key] = (make(), other)
        return self._memo[key][0]


def _arithmetic(name: str, compute: Callable[[Any, Any], Any], reflected: bool) -> Callable[..., object]:
    ordered = (lambda a, b: compute(b, a)) if reflected else compute

    def method(self: ScheduledFloat, other: object) -> object:
        if isinstance(other, torch.Tensor):
            return ordered(self.tensor, other)
        if not isinstance(other, (int, float)):
            return NotImplemented
        right = other.tensor if isinstance(other, ScheduledFloat) else other
        value = float(other)
        return self._once(
            name, other, lambda: ScheduledFloat(ordered(float(self), value), ordered(self.tensor, right))
        )

    return method


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _compute = getattr(operator, _name)
    setattr(ScheduledFloat, f"__{_name}__", _arithmetic(_name, _compute, reflected=False))
    setattr(ScheduledFloat, f"__r{_name}__", _arithmetic("r" + _name, _compute, reflected=True))


class ScheduledArguments(TorchFunctionMode):
    """Let torch functions take a ScheduledFloat, or a 0-d tensor for ``alpha=`` and ``value=``."""

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        args = _scale_by_keyword(name, args, kwargs)
        if name in ("lerp", "lerp_"):
            args = tuple(_of_dtype(a, args[0].dtype) for a in args)
            kwargs = {key: _of_dtype(value, args[0].dtype) for key, value in kwargs.items()}
        # An op that takes no tensor there raises, which is better than a number that no scheduler can change.
        args = tuple(_as_tensor(a) for a in args)
        return func(*args, **{key: _as_tensor(value) for key, value in kwargs.items()})


def _scale_by_keyword(name: str, args: tuple, kwargs: dict[str, object]) -> tuple:
    """Rewrite ``add(x, y, alpha=a)`` as ``add(x, y * a)``, and ``addcmul(x, y, z, value=a)`` likewise."""
    keyword = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}.get(name.rstrip("_"))
    if keyword is None:
        return args
    factor = _as_tensor(kwargs.get(keyword))
    if not isinstance(factor, torch.Tensor):
        return args
    del kwargs[keyword]
    return (args[0], args[1] * factor, *args[2:])


def _as_tensor(value: object) -> object:
    return value.tensor if isinstance(value, ScheduledFloat) else value


def _of_dtype(value: object, dtype: torch.dtype) -> object:
    return value.cast(dtype) if isinstance(value, ScheduledFloat) else value
