"""``shardc.rule``: sharding rules for operators that a user registers with ``torch.library``.

A rule is proved at registration by running its samples, so an unsound rule never reaches a program. It is
used for calls that are like one of the samples: the same rule text, dtypes and settings, at any size. Any
other call, such as a norm over another dim, is replicated with a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, ClassVar

import torch

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.dialects.rules import BadRule
from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import UnknownOperator, overload
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.einsum import parse_rule
from shardc.dialects.rules.proving.execution import call_of
from shardc.dialects.rules.proving.proof import prove
from shardc.dialects.rules.rule import Rule, add_rule, load_rules
from shardc.runtime.torch_private import schema_of

UserRule = Callable[[OpCall], Rule | str | None]


def rule(op: str, *, samples: Sequence[Sequence[Any]]) -> Callable[[UserRule], UserRule]:
    """Register and prove the decorated function as the sharding rule of an operator.

    The function gets the call (``call["x"].shape``, ``call["eps"]``) and returns its rule: as text such as
    ``"([i,k],[k,j])->([i,j]) reduce={k}"``, as a ``Rule``, or as None for calls that are to be replicated.
    The rule is proved at once: on the samples, every factor is split, and every pair of factors.

    Args:
        op: The operator's name, as ``"mylib::norm"``.
        samples: Lists of arguments, with real CPU tensors of a few elements in dims that can be halved.

    Returns:
        A decorator, which returns the function as it is.

    Raises:
        UnsoundRule: A sample disproves the rule; the message has the counterexample.
        BadRuleText: The rule's text cannot be read.
        BadRule: The operator is not registered, writes to its arguments or has a rule already; or there are
            no samples, or they leave a factor uncut.

    Example:
        >>> @torch.library.custom_op("docs::row_norm", mutates_args=())
        ... def row_norm(x: torch.Tensor) -> torch.Tensor:
        ...     return x / x.norm(dim=1, keepdim=True)
        >>> @row_norm.register_fake
        ... def _(x):
        ...     return torch.empty_like(x)
        >>> @shardc.rule("docs::row_norm", samples=[(torch.randn(4, 6),)])
        ... def rule_of_row_norm(call):
        ...     return "([i,d])->([i,d]) replicate={d}"
    """
    if not isinstance(op, str):
        problem = "the operator's name is not a string"
        raise BadRule(op=f"{op!r:.80}", problem=problem, hint="name it as PyTorch does: 'mylib::norm'")
    target = op.replace("::", ".").removesuffix(".default")

    def register(function: UserRule) -> UserRule:
        if not isinstance(function, FunctionType):
            raise BadRule(
                op=op,
                problem="the decorated object is not a function",
                hint="decorate a function of the call",
            )
        where = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
        try:
            _check_operator(target)
            _check_samples(target, samples)
            add_rule(target, _Custom(target, function, _proved(target, function, samples)), replace=_Custom)
        except ShardcError as error:
            raise type(error)(where=error.where or where, **error.fields) from error.__cause__
        return function

    return register


@dataclass(frozen=True)
class _Custom:
    """A user's rule. It applies only to calls that are like a sample on which it was proved."""

    target: str
    function: UserRule
    proved: frozenset[object]
    declines: ClassVar[str] = "is called with arguments of which its rule has no sample"

    def __call__(self, call: OpCall) -> Rule | None:
        found = _made(self.function, call)
        return found if found is not None and _likeness(call, found) in self.proved else None


def _check_operator(target: str) -> None:
    try:
        schema = schema_of(overload(target))
    except (UnknownOperator, ValueError):
        problem = "no operator of that name is registered with PyTorch"
        hint = "register it first, with torch.library.custom_op or torch.library.define"
        raise BadRule(op=target, problem=problem, hint=hint) from None
    if schema.is_mutable:
        problem = "it writes to its arguments, but values of a step are immutable"
        raise BadRule(op=target, problem=problem, hint="register a form of it that returns its result")
    known = load_rules().get(target)
    if known is not None and not isinstance(known, _Custom):
        hint = "leave it out: calls of it are sharded already"
        raise BadRule(op=target, problem="shardc has a rule for it", hint=hint)


def _check_samples(target: str, samples: Sequence[Sequence[Any]]) -> None:
    """Check that samples are lists of arguments with which the operator can be called. Raises BadRule."""
    hint = "give lists of arguments: samples=[(torch.randn(4, 6), 1e-5)]"
    if not isinstance(samples, list | tuple) or not all(isinstance(s, list | tuple) for s in samples):
        raise BadRule(op=target, problem="its samples are not lists of arguments", hint=hint)
    for number, sample in enumerate(samples):
        try:
            overload(target)(*sample)
        except Exception as error:
            first_line = str(error).partition("\n")[0]
            problem = f"the operator fails on sample {number} ({type(error).__name__}: {first_line})"
            raise BadRule(op=target, problem=problem, hint=hint) from error


def _proved(target: str, function: UserRule, samples: Sequence[Sequence[Any]]) -> frozenset[object]:
    """Prove the rule on every sample. Return the likenesses of the calls that it covers."""
    proved, reached, rules = set(), set(), []
    with torch.no_grad():
        for sample in samples:
            call, *_ = call_of(target, sample)
            found = _made(function, call)
            if found is None:
                continue
            proof = prove(target, sample, rule=found)
            reached.update(f for cut in proof.cuts for f in cut)
            proved.add(_likeness(call, found))
            rules.append(found)
    if not rules:
        hint = "give sample arguments that it covers: samples=[(torch.randn(4, 6), 1e-5)]"
        raise BadRule(op=target, problem="it has no samples on which to prove it", hint=hint)
    uncut = sorted({f for r in rules for f in r.factors} - reached)
    if uncut:
        hint = f"give a sample in which {', '.join(uncut)} has 2 elements or more, or list it under replicate"
        raise BadRule(op=target, problem=f"no sample shards its factor {', '.join(uncut)}", hint=hint)
    return frozenset(proved)


def _made(function: UserRule, call: OpCall) -> Rule | None:
    found = function(call)
    return parse_rule(found, call) if isinstance(found, str) else found


def _likeness(call: OpCall, rule: Rule) -> object:
    """Return a key that two calls share if a proof of one holds for the other.

    It has everything except sizes and the values of tensors and floats. The rule's text covers ranks and
    broadcasting. A float 0 is distinguished from other floats, because the term that it multiplies vanishes.
    """
    return call.target, str(rule), rule.linear, _like(call.args), _like(call.results)


def _like(value: object) -> object:
    if isinstance(value, TensorType):
        return "floats" if value.dtype.is_floating_point else value.dtype
    if isinstance(value, tuple):
        return tuple(map(_like, value))
    if isinstance(value, torch.dtype):
        return "floats" if value.is_floating_point else value
    if isinstance(value, float):
        return "zero" if value == 0 else "float"
    return type(value), value
