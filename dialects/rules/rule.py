"""Sharding rules as factor maps.

A rule relates the dims of one call's operands and results, as an einsum does: ``([i,k],[k,j])->([i,j])
reduce={k}``. Propagation, partial results, local arguments and cost are derived from it. The idea is Shardy's
(OpenXLA, rfcs/2024-08 "sharding rules"); reductions, linearity and lowering are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import import_module
from math import inf, prod
from typing import Any, Protocol, TypeVar

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import position
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.sharding import Axes, Sharding

Dim = tuple[str, ...]
"""The factors of a dim, the most major first; () for size 1, or if no factor describes the dim."""
Dims = tuple[Dim, ...]
Linear = tuple[frozenset[int], ...]
"""Sets of operand numbers."""


class Local(Protocol):
    """Interface through which a rule's ``lower`` builds one rank's version of a call.

    Tensors are opaque handles: MLIR values when a program is partitioned, real tensors when a rule is proved.
    """

    @property
    def spec(self) -> OpCall:
        """The call with global shapes."""
        ...

    @property
    def args(self) -> tuple[Any, ...]:
        """The call's arguments, with this rank's tensors instead of global ones."""
        ...

    @property
    def results(self) -> tuple[TensorType | None, ...]:
        """The types of this rank's results."""
        ...

    def size(self, factor: str) -> int:
        """Return how many of the factor's elements this rank has."""
        ...

    def ways(self, factor: str) -> int:
        """Return how many ways the factor is split; 1 if it is whole."""
        ...

    def offset(self, factor: str, scale: int = 1, base: Any = 0) -> Any:
        """Return ``base + scale * (index of this rank's first element of the factor)``, an int or a
        handle.
        """
        ...

    def exchange(self, value: Any, factor: str, sources: Sequence[int]) -> Any:
        """Give the rank with index ``i`` over the factor the ``value`` of the rank with index ``sources[i]``.

        A source of -1 gives zeros. Each rank sends to at most one other. ``factor`` must be one of the rule's
        ``traded``.
        """
        ...

    def emit(self, target: str, *args: object) -> Any:
        """Run or build one operator; arguments in schema order (trailing ones may be left to defaults)."""
        ...


Lower = Callable[[Local], Sequence[Any]]


def emit_with(local: Local, **changed: object) -> Any:
    """Emit the call on this rank, with the arguments in ``changed`` replaced by name."""
    args = list(local.args)
    for name, value in changed.items():
        args[position(local.spec.target, name)] = value
    return local.emit(local.spec.target, *args)


def numbered(letter: str, shape: Iterable[int]) -> dict[str, int]:
    """Return a factor with its size for each dim of ``shape``: ``n0``, ``n1``, ..."""
    return {f"{letter}{i}": size for i, size in enumerate(shape)}


def plain(factors: Iterable[str]) -> Dims:
    """Return a dim for each factor."""
    return tuple((f,) for f in factors)


_NEUTRAL = {"sum": 0.0, "max": -inf, "min": inf}


@dataclass(frozen=True)
class Rule:
    """Sharding rule of one call: the factors that the dims of its tensors share.

    - ``operands``/``results``: for each tensor, for each dim, its factors. A factor has one size everywhere.
    - ``reduce``: factors that results may lack, with "sum", "max" or "min"; a result without such a factor is
    partial over the axes that split it. - ``replicate``: factors that must stay whole. - ``linear``: sets of
    operands in which the call is jointly linear: if exactly one set's operands are all partial sums over an
    axis, so is every result. - ``neutral``: for a factor, the number that its padding must hold in each
    operand so that results do not depend on it. A number is None if any number is allowed; the entry is None
    if the factor cannot be padded. Factors without an entry follow :meth:`neutral_of`. - ``lower``: builds
    the local call, if that is more than the same operator on local tensors. - ``traded``: factors over which
    ``lower`` exchanges values between ranks. Time axes cannot split them. - ``trades_in_loops``: whether such
    exchanges may stand in a loop's body: no traded factor is a batch.
    """

    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    sizes: Mapping[str, int]
    reduce: Mapping[str, str] = field(default_factory=dict)
    replicate: frozenset[str] = frozenset()
    linear: Linear = ()
    lower: Lower | None = None
    neutral: Mapping[str, tuple[float | None, ...] | None] = field(default_factory=dict)
    traded: frozenset[str] = frozenset()
    trades_in_loops: bool = False

    def neutral_of(self, factor: str) -> tuple[float | None, ...] | None:
        """Return what padding of ``factor`` must hold in each operand; None if the factor cannot be padded.

        A number is None if any number is allowed. A sum ignores zeros, and a maximum ignores the least
        number. If all results have the factor, or it is not reduced, padding affects only padding.
        """
        if factor in self.neutral:
            return self.neutral[factor]
        if factor in self.replicate or factor in self.traded:
            return None
        lacking = any(all(factor not in dim for dim in dims) for dims in self.results)
        number = _NEUTRAL.get(self.reduce.get(factor, "")) if lacking else None
        return (number,) * len(self.operands)

    @property
    def factors(self) -> tuple[str, ...]:
        """The factors that may be split, in order of first use."""
        return tuple(f for f in self.sizes if f not in self.replicate)

    def operand_shardings(self, assignment: Assignment) -> list[Sharding]:
        """Return the shardings that the call requires of its operands under ``assignment``."""
        return [Sharding(dims_under(dims, assignment)) for dims in self.operands]

    def result_shardings(self, assignment: Assignment) -> list[Sharding]:
        """Return the shardings of its results under ``assignment``, partial in reduced factors that they
        lack.
        """
        made = []
        for dims in self.results:
            present = {f for dim in dims for f in dim}
            reduced = [f for f in assignment if f not in present and f in self.reduce]
            partial = tuple((self.reduce[f], axis) for f in reduced for axis in assignment[f])
            made.append(Sharding(dims_under(dims, assignment)).with_partial(partial))
        return made

    def __str__(self) -> str:
        text = f"({_tensors(self.operands)})->({_tensors(self.results)})"
        for kind in sorted(set(self.reduce.values())):
            name = "reduce" if kind == "sum" else f"reduce_{kind}"
            text += f" {name}={{{','.join(f for f in self.sizes if self.reduce.get(f) == kind)}}}"
        for name, factors in (("replicate", self.replicate), ("trade", self.traded)):
            if factors:
                text += f" {name}={{{','.join(f for f in self.sizes if f in factors)}}}"
        return text


def _tensors(tensors: tuple[Dims, ...]) -> str:
    return ",".join(f"[{','.join(map(_dim, dims))}]" for dims in tensors)


def _dim(dim: Dim) -> str:
    return f"({' '.join(dim)})" if len(dim) > 1 else "".join(dim) or "1"


Assignment = Mapping[str, Axes]
"""The axes that split each factor of one call."""


def dims_under(dims: Dims, assignment: Assignment) -> tuple[Axes, ...]:
    """Return the axes of each dim of a tensor under ``assignment``."""
    return tuple(tuple(a for f in dim for a in assignment.get(f, ())) for dim in dims)


def representable(dims: Dims, assignment: Assignment, sizes: Mapping[str, int]) -> bool:
    """Return whether a sharding can express the assignment.

    All factors that are more major than a split one in its dim must be split into single elements.
    """
    for dim in dims:
        for major, minor in itertools.pairwise(dim):
            if assignment.get(minor) and prod(a.size for a in assignment.get(major, ())) != sizes[major]:
                return False
    return True


def factor_axes(dims: Dims, sharding: Sharding, sizes: Mapping[str, int]) -> dict[str, Axes]:
    """Return the axes that split each factor, given a tensor's sharding: the inverse of :func:`dims_under`.

    Axes are assigned to a dim's factors in order; an axis that spans two factors is split into sub-axes if
    the sizes allow. A remainder that divides no factor is left out.
    """
    found: dict[str, Axes] = {}
    for dim, axes in zip(dims, sharding.dims, strict=True):
        rest = list(axes)
        for f in dim:
            taken, room = [], sizes[f]
            while rest and room > 1:
                axis = rest[0]
                if room % axis.size == 0:
                    taken.append(rest.pop(0))
                    room //= axis.size
                elif axis.size % room == 0:
                    head, tail = axis.split(room)
                    taken.append(head)
                    rest[0] = tail
                    room = 1
                else:
                    rest = []
            if taken:
                found[f] = tuple(taken)
            if room > 1:
                break
    return found


def assignment_of(rule: Rule, shardings: Sequence[Sharding]) -> dict[str, Axes]:
    """Return the assignment behind the shardings of operands and results, once reshards are explicit."""
    found: dict[str, Axes] = {}
    for dims, sharding in zip(rule.operands + rule.results, shardings, strict=True):
        for f, axes in factor_axes(dims, sharding, rule.sizes).items():
            if len(axes) > len(found.get(f, ())):
                found[f] = axes
    return found


RuleFunction = Callable[[OpCall], Rule | None]
_F = TypeVar("_F", bound=RuleFunction)
_RULES: dict[str, RuleFunction] = {}
# Modules of rules, one for each family of operators; importing one registers its rules.
FAMILIES = """
    attention creation embedding experts fourier indexing linear_algebra matmul normalization pointwise
    random reduction ring_attention scan_sort spatial.causal spatial.convolution spatial.padded
    spatial.padded_pooling spatial.pads spatial.patches spatial.pooling spatial.resampling spatial.slices
    views
"""


def rule_for(*targets: str) -> Callable[[_F], _F]:
    """Register the decorated function as the rule of ``targets`` (``aten.mm``, ``aten.add.Tensor``).

    The function takes the call and returns its rule, or None for arguments that it does not cover.
    """

    def register(function: _F) -> _F:
        for target in targets:
            if target in _RULES:
                raise ValueError(f"two rules for {target}")
            _RULES[target] = function
        return function

    return register


@cache
def load_rules() -> Mapping[str, RuleFunction]:
    """Import all families, and return every registered rule by target."""
    for family in FAMILIES.split():
        import_module(f"shardc.dialects.rules.{family}")
    return _RULES


added: set[str] = set()
"""Targets with a user's rule."""


def add_rule(target: str, function: RuleFunction, *, replace: type) -> None:
    """Register a rule, also after programs were compiled. It may replace a rule of class ``replace``."""
    load_rules()
    if isinstance(_RULES.get(target), replace):
        del _RULES[target]
    rule_for(target)(function)
    added.add(target)
    find_rule.cache_clear()
    find_rule_in_loops.cache_clear()


def why_no_rule(call: OpCall) -> str:
    """Return why a call has no rule, as text that follows the op's name in a remark."""
    return getattr(_RULES.get(call.target), "declines", "has no sharding rule")


class ImpossibleCall(TypeError):
    """Raised when the types of a call contradict each other, which only imported IR can cause."""


@lru_cache(maxsize=65536)
def find_rule(call: OpCall) -> Rule | None:
    """Return the rule of a call, or None. Equal calls share one rule object. Raises ImpossibleCall."""
    function = load_rules().get(call.target)
    return function(call) if function else None


@lru_cache(maxsize=65536)
def find_rule_in_loops(call: OpCall) -> Rule | None:
    """Return the rule of a call in a program with time axes.

    Traded factors stay whole, because an iteration cannot exchange values with a later one.
    """
    rule = find_rule(call)
    if rule is None or not rule.traded or rule.trades_in_loops:
        return rule
    return replace(rule, replicate=rule.replicate | rule.traded, traded=frozenset())


def replicated_rule(call: OpCall) -> Rule:
    """Return the rule of a call about which nothing is known: all factors stay whole."""
    sizes: dict[str, int] = {}

    def name(tensor: TensorType | None) -> Dims:
        dims = []
        for size in tensor.shape if tensor else ():
            sizes[f"r{len(sizes)}"] = size
            dims.append((f"r{len(sizes) - 1}",))
        return tuple(dims)

    operands = tuple(name(t) for t in call.tensors)
    return Rule(operands, tuple(name(t) for t in call.results), sizes, replicate=frozenset(sizes))
