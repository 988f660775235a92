"""Proof of a rule by execution: split the operands, run every rank's call, assemble the results, compare.

For one call on real tensors, a proof splits: nothing; each factor; each pair of factors; all factors at once;
each factor over sub-axes. It also splits the operands of each ``linear`` set into random terms, alone and
together with each factor. A factor behind others in a dim is split only with those split into single
elements, as blocks of dims demand. Shardings are also read back: they must give the same cut.

A result that lacks a factor which is not reduced must be equal on all ranks. That is checked by execution,
because it is legal for results of a ``_foreach`` op, or of ``new_zeros``, that do not depend on the factor.

Only sizes that divide are split. ``dist-pad`` pads other sizes; ``padding.py`` proves padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardc.diagnostics.dialects.rules import NoRuleToProve
from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.proving.cuts import Cut, cuts, over_one_axis, over_own_axes, over_sub_axes
from shardc.dialects.rules.proving.execution import call_of, tuples
from shardc.dialects.rules.proving.padding import check_padding
from shardc.dialects.rules.proving.trial import Trial
from shardc.dialects.rules.rule import Rule, find_rule


@dataclass(frozen=True)
class Proof:
    """Result of the proof of one call: its rule, and the cuts that were run (ways of each factor)."""

    call: OpCall
    rule: Rule
    cuts: tuple[Cut, ...]
    unreached: tuple[str, ...]
    """Factors that may be split but were in no cut: of size 1, or behind a factor that must stay whole."""
    padded: tuple[str, ...] = ()
    """Factors whose padding was proved."""

    def __str__(self) -> str:
        return f"{self.call.target} {self.rule}: {len(self.cuts)} cuts, {len(self.rule.linear)} linear sets"


def prove(
    target: str,
    args: Sequence[Any],
    *,
    rule: Rule | None = None,
    ways: tuple[int, ...] = (2,),
    pairs: bool = True,
    values: bool = True,
    tolerance: float | None = None,
) -> Proof:
    """Prove the rule of ``target`` on ``args``: real tensors and constants, in schema order.

    Each factor is split into each of ``ways`` that divides it, or into its smallest prime if none does. If
    ``values`` is False, only shapes and dtypes are compared, as for ``empty``. ``tolerance`` is relative; the
    default depends on the dtype. ``rule`` replaces the registered rule. Raises UnsoundRule with the
    counterexample, or NoRuleToProve if the call has none.
    """
    call, full, whole = call_of(target, args)
    rule = rule or find_rule(call)
    if rule is None:
        raise NoRuleToProve(op=target, args=tuples(call.args))
    trial = Trial(call, rule, full, whole, values, tolerance)
    trial.check_form()
    tried = list(cuts(rule, ways, pairs))
    for cut in tried:
        trial.check_cut(over_own_axes(cut))
        trial.check_reading(over_one_axis(cut))
    for assignment in over_sub_axes(rule):
        trial.check_cut(assignment)
    for operands in rule.linear:
        for assignment in ({}, *(over_own_axes(cut) for cut in cuts(rule, (2,), pairs=False) if cut)):
            trial.check_linear(operands, assignment)
    reached = {f for cut in tried for f in cut}
    padded = check_padding(trial)
    return Proof(call, rule, tuple(tried), tuple(f for f in rule.factors if f not in reached), padded)
