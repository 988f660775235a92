"""Errors of sharding rules: missing, malformed, or disproved by execution."""

from shardc.diagnostics.base import ShardcError


class NoRuleToProve(ShardcError):
    """The op of the call to prove has no registered rule, or its rule declines this call."""

    template = "{op} has no sharding rule for these arguments: {args}"
    hint = "register one with @rule_for({op!r}) in its family's module under dialects/rules/"


class UnsoundRule(ShardcError):
    """A rule makes a false claim about its operator. Bad: ``([i],[i])->([])`` for ``dot`` (no ``reduce``).

    ``problem`` names the factor or result at fault and the size of the error. ``cut`` says how the factors
    were sharded, the resulting blocks of the sample's operands, and the first element that differs.
    """

    template = "the rule of {op} is wrong: {problem}\n  rule: {rule}\n  cut:  {cut}"
    hint = "correct the rule's factors, reduce, replicate, linear or lower; the proof runs it on real tensors"


class BadRuleText(ShardcError):
    """A rule's text can't be read. Bad: ``[i]->[i]``. Good: ``([i,k],[k,j])->([i,j]) reduce={k}``."""

    template = "the rule {text!r} of {op} can't be read: {problem}"
    hint = (
        "write it as ([i,k],[k,j])->([i,j]) reduce={{k}}: each tensor's dims in brackets, then reduce, "
        "replicate, linear"
    )


class BadRule(ShardcError):
    """``shardc.rule`` was used on an operator that can't have one, or without samples.

    Bad: ``@shardc.rule("aten::mm", samples=[...])``, which has a rule. Good: a registered operator of yours.
    """

    template = "{op} can't be given this rule: {problem}"
    hint = "{hint}"
