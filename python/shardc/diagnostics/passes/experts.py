"""Errors in the option ``expert_copies``, which copies experts to all devices of their axis."""

from collections.abc import Sequence

from shardc.diagnostics.base import ShardcError


class BadCopies(ShardcError):
    """``expert_copies`` is not a list of experts' numbers: ``expert_copies="hot"``.

    Works: ``expert_copies=[3, 17]``, or ``expert_copies={"layers.0.*": [3, 17]}``.
    """

    template = "expert_copies is {given!r}, not a list of different expert numbers, whole and from 0"
    hint = (
        "give a list for all layers, expert_copies=[3, 17], or one for each layer, "
        'expert_copies={{"layers.0.*": [3, 17]}}; on the command line, --expert-copies 3:17 or '
        "'layers.0.*=3:17,layers.1.*=5'"
    )


class NoSuchCopy(ShardcError):
    """``expert_copies`` names an expert that a layer does not have: 9 of 8."""

    template = "expert_copies names expert {expert}, but {name!r} has {experts} experts"
    hint = "name experts from 0 to {last}"

    def __init__(self, *, expert: int, name: str, experts: int, where: str | None = None) -> None:
        super().__init__(where=where, expert=expert, name=name, experts=experts, last=experts - 1)


class AllExpertsCopied(ShardcError):
    """``expert_copies`` names all experts of a layer, so none is left to distribute."""

    template = "expert_copies names all {experts} experts of {name!r}, so none is left to distribute"
    hint = (
        "name only the few experts that get the most rows, or leave 'expert' out of the plan: then "
        "each device has all of them"
    )


class CopiesNothing(ShardcError):
    """A pattern of ``expert_copies`` matches no experts whose rows are sent."""

    template = "expert_copies names {pattern!r}, which matches no experts that rows choose by an index"
    hint = "{instead}"

    def __init__(self, *, pattern: str, nearest: Sequence[str], where: str | None = None) -> None:
        instead = "leave expert_copies out: the step has no such experts"
        if nearest:
            instead = f"name parameters, or the modules that have them: {', '.join(nearest)}"
        super().__init__(where=where, pattern=pattern, instead=instead)
