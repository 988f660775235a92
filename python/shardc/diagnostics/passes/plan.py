"""Errors in meshes, plans and shardings that a user writes."""

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.text import did_you_mean


class UnknownPreset(ShardcError):
    """A word in a plan is no preset: ``plan="tensr"``."""

    template = "{word!r} in plan {plan!r} is not a preset{nearest}"
    hint = (
        "use {known}, products such as 'data*tensor', the path of a saved plan (a .json file), or a mapping "
        "of name patterns to shardings"
    )

    def __init__(self, *, word: str, known: str, where: str | None = None, **fields: object) -> None:
        fields["nearest"] = did_you_mean(word.lower(), known.split(", "))
        super().__init__(where=where, word=word, known=known, **fields)


class UnknownAxis(ShardcError):
    """A plan names a mesh axis that the mesh does not have."""

    template = "{what} needs mesh axis {axis!r}; the mesh has {known}"
    hint = "name the axis: {suggestion}"


class NoExperts(ShardcError):
    """``plan="expert"`` was given for a step without expert parameters [experts, ...] in one product."""

    template = (
        "preset 'expert' found no experts: no parameter [experts, rows, columns] has a matrix chosen "
        "for each row, or experts as the batch dim of a matrix product"
    )
    hint = (
        "write experts that a loop calls one by one as one product, torch.bmm(w[ids], x[..., None]) or "
        "torch.einsum('ecm,emh->ech', x, w), or leave 'expert' out of the plan"
    )


class ExpertsInALoop(ShardcError):
    """``plan="expert"`` was given for experts that a loop calls one by one.

    Fails: ``for i in range(n): y = torch.where(ids == i, x @ w[i], y)``.
    Works: ``y = torch.bmm(w[ids], x[..., None])``.
    """

    template = (
        "preset 'expert' cannot distribute the {experts} experts of {name!r}: a loop multiplies each "
        "of them with all rows, which is {share:.0%} of the forward's work"
    )
    hint = (
        "write them as one product, torch.bmm(w[ids], x[..., None]) or torch.einsum('ecm,emh->ech', x, w), "
        "or leave 'expert' out of the plan"
    )


class ExpertsNotDivided(ShardcError):
    """The axis of ``plan="expert"`` does not divide the number of experts: 8 experts on 3 devices."""

    template = "{experts} experts of {name!r} cannot be distributed evenly over {axis}={ways}"
    hint = "give the axis a size that divides them; the nearest is {nearest}: mesh={{{axis!r}: {nearest}}}"


class ExpertGroups(ShardcError):
    """``expert_group`` does not divide the devices that share the experts: groups of 3 of 4 devices.

    Fails: ``mesh={"expert": 4}, plan="expert", expert_group=3``.
    Works: the same with ``expert_group=2``.
    """

    template = "expert_group={group} does not divide the devices of {axis}={ways}"
    hint = "pass a number that divides {ways}; the nearest is expert_group={nearest}"


class AxisUsedTwice(ShardcError):
    """A sharding uses a mesh axis twice: ``["tensor", "tensor"]``."""

    template = "the sharding of {name!r} uses axis {axis!r} twice: {sharding}"
    hint = "an axis can shard only one dim of a value; remove it from the others"


class AxisOfTwoPresets(ShardcError):
    """Two presets of a product use one mesh axis: ``data:x*tensor:x``."""

    template = "presets {first!r} and {second!r} of the plan {plan!r} both use mesh axis {axis!r}"
    hint = (
        "give each preset an axis of its own (preset:axis), or drop one: zero1, zero2 and zero3 include data"
    )


class TooManyDims(ShardcError):
    """A sharding has more dims than the value: ``["data", None, None]`` for a matrix."""

    template = "the sharding of {name!r} has {given} dims, but its shape is {shape}"
    hint = "give one entry per dim (None: not sharded), or fewer: the remaining dims stay whole"


class PatternMatchesNothing(ShardcError):
    """A name pattern in a plan matches no parameter and no input."""

    template = "pattern {pattern!r} in the plan matches no argument of the step"
    hint = "the nearest names are {nearest}"


class ConstrainsNothing(ShardcError):
    """A pattern of ``constraints`` matches no module, or modules without an output to constrain."""

    template = "constraints name {pattern!r}, {problem}"
    hint = (
        "name modules that the forward calls, as in model.named_modules(), or call "
        "shardc.constrain(x, layout) in the model's code"
    )


class TooManyWays(ShardcError):
    """A dim has fewer elements than blocks: 3 elements over 4 devices (5 over 4 works: 2, 2, 1, 0)."""

    template = "dim {dim} of {name!r} has {size} elements and cannot be sharded {ways} ways ({axes})"
    hint = (
        "shard it over axes of at most {size} devices in all, or leave it whole; for a batch, pass "
        "{ways} rows or more, or use fewer micro_batches"
    )


class HeadsNotDivided(ShardcError):
    """``plan="ulysses"`` does not divide the attention heads: 12 heads on 8 devices."""

    template = (
        "attention has {heads} heads, which do not divide evenly over axis {axis!r} of {ways} "
        "devices{besides}"
    )
    hint = "{fewer}use the preset 'allgather', which does not shard heads"

    def __init__(
        self, *, axis: str, nearest: int, others: int, where: str | None = None, **fields: object
    ) -> None:
        fields["besides"] = f" beside the {others} ways that other axes shard them" if others > 1 else ""
        second = f"a second axis the rest, as in 'allgather:rows*ulysses:{axis}'"
        fields["fewer"] = f"give {axis!r} {nearest} devices and {second}, or " if nearest > 1 else ""
        super().__init__(where=where, axis=axis, **fields)


class BadMeshSpec(ShardcError):
    """A mesh that is empty, or an axis with a size below 1."""

    template = "mesh {mesh} is not valid: {problem}"
    hint = 'give names and sizes, as in mesh={{"data": 2, "tensor": 2}}'


class BadPlanFile(ShardcError):
    """A saved plan is truncated, of another version, or for another model."""

    template = "plan {path} cannot be used: {problem}"
    hint = (
        "save the plan again with step.save_plan(path), or take plan.json from a folder that shardc compile "
        "wrote, of this model, optimizer, batch and mesh"
    )


class BadShardingEntry(ShardcError):
    """An entry of a sharding that is neither None, an axis, nor a list of axes."""

    template = "the sharding of {name!r} has the invalid entry {entry!r}"
    hint = 'write each entry as None, an axis such as "tensor", or a list of axes such as ["data", "tensor"]'


class OneTimeAxis(ShardcError):
    """A mesh has several time axes; nested loops are not supported yet."""

    template = "the mesh has several time axes ({axes}); a step can loop over one of them only"
    hint = "use one time axis with the product of their sizes"
