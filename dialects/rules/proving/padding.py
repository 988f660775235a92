"""Proof of a rule's padding: pad one factor, run the call, remove the padding, compare with the whole.

Padding holds the numbers of the rule's ``neutral_of``. Where any number is allowed it holds NaN (or true, or
the index 0). If the operator rejects padded operands, or its results have other shapes than the rule implies,
the factor is skipped; ``dist-pad`` does not pad such a call either.
"""

from collections.abc import Mapping, Sequence
from math import inf, nan, prod

import torch
from torch import Tensor

from shardc.dialects.aten.call import fill
from shardc.dialects.rules.proving.execution import EagerLocal, tensor_leaves, type_of
from shardc.dialects.rules.proving.trial import Trial
from shardc.dialects.rules.rule import Dim, Rule

MORE = 2
"""Number of elements of padding."""
ANY = 7.5
"""An arbitrary finite number."""
Sizes = Mapping[str, int]


def check_padding(trial: Trial) -> tuple[str, ...]:
    """Prove the padding of every factor that may be padded. Return those that were. Raises UnsoundRule."""
    found = []
    for f, size in trial.rule.sizes.items():
        numbers = trial.rule.neutral_of(f)
        if size > 1 and numbers is not None and _check(trial, f, numbers):
            found.append(f)
            for linear in _linear_sets(trial.rule, f):
                _check(trial, f, [0.0 if i in linear else ANY for i in range(len(numbers))])
    return tuple(found)


def _linear_sets(rule: Rule, factor: str) -> list[frozenset[int]]:
    """Return linear sets whose zeros suffice: with them, padding of other operands may be any finite
    number.
    """
    if factor in rule.neutral or 0.0 not in (rule.neutral_of(factor) or ()):
        return []
    return [s for s in rule.linear if any(factor in dim for i in s for dim in rule.operands[i])]


def _check(trial: Trial, factor: str, numbers: Sequence[float | None]) -> bool:
    rule, call = trial.rule, trial.call
    sizes = {**rule.sizes, factor: rule.sizes[factor] + MORE}
    operands = zip(tensor_leaves(trial.args), rule.operands, numbers, strict=True)
    padded = [_padded(t, d, rule.sizes, factor, n) for t, d, n in operands]
    shapes = [
        tuple(_size(n, dim, rule.sizes, sizes) for n, dim in zip(t.shape, d, strict=True)) if t else ()
        for t, d in zip(call.results, rule.results, strict=True)
    ]
    types = tuple(t and t.with_shape(shape) for t, shape in zip(call.results, shapes, strict=True))
    local = EagerLocal(call, fill(call.args, padded), types, sizes, {}, {})
    try:
        made = trial.made_by(local)
    except Exception:  # a user's operator may raise anything
        return False
    if [type_of(v) for v in made] != list(types):
        return False
    for r, (value, whole, dims) in enumerate(zip(made, trial.whole, rule.results, strict=True)):
        if whole is not None:
            found = _cut_off(value, dims, rule.sizes, factor)
            trial.compare(f"result {r} with {factor} padded", whole, found, {})
    return True


def _size(size: int, dim: Dim, old: Sizes, new: Sizes) -> int:
    return size // prod(old[f] for f in dim) * prod(new[f] for f in dim) if dim else size


def _padded(tensor: Tensor, dims: Sequence[Dim], sizes: Sizes, factor: str, number: float | None) -> Tensor:
    for d, dim in enumerate(dims):
        if factor in dim:
            apart, at = tensor.unflatten(d, [sizes[f] for f in dim]), d + dim.index(factor)
            more = (*apart.shape[:at], MORE, *apart.shape[at + 1 :])
            rest = apart.new_full(more, _number(number, tensor.dtype))
            tensor = torch.cat([apart, rest], at).flatten(d, d + len(dim) - 1)
    return tensor


def _cut_off(tensor: Tensor, dims: Sequence[Dim], sizes: Sizes, factor: str) -> Tensor:
    for d, dim in enumerate(dims):
        if factor in dim:
            apart = tensor.unflatten(d, [sizes[f] + MORE * (f == factor) for f in dim])
            tensor = apart.narrow(d + dim.index(factor), 0, sizes[factor]).flatten(d, d + len(dim) - 1)
    return tensor


def _number(number: float | None, dtype: torch.dtype) -> float | int | bool:
    if dtype.is_floating_point or dtype.is_complex:
        return nan if number is None else number
    if dtype == torch.bool:
        return number is None or number > 0
    if number is None or number == ANY:
        return 0
    if abs(number) == inf:
        return torch.iinfo(dtype).max if number > 0 else torch.iinfo(dtype).min
    return int(number)
