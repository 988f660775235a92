"""Errors in plans of other libraries: styles of ``parallelize_module`` and of ``transformers`` models."""

from shardc.diagnostics.base import ShardcError


class UnknownStyle(ShardcError):
    """Neither torch nor ``transformers`` has a style: ``{"layers.*.mlp": "colwize"}``."""

    template = "pattern {pattern!r} has the style {style!r}, which shardc does not know{nearest}"
    hint = "the styles are {known}"


class StyleNotForModule(ShardcError):
    """``ColwiseParallel()`` was given for a module that is neither a linear layer nor an embedding."""

    template = "pattern {pattern!r} has the style {style}, which is for {expected}; {module!r} is {kind}"
    hint = "name the linear layers and embeddings inside of it, or give a pattern of names and shardings"


class LayoutRefused(ShardcError):
    """A plan cannot have a style's layout of activations: ``ColwiseParallel(input_layouts=Shard(0))``."""

    template = "pattern {pattern!r} has the style {style} with {which}={layout}, {why}"
    hint = (
        "layouts of activations are Replicate(), Shard(-1) (the features) and Shard(1) (the "
        'sequence); shard the batch over an axis of its own, as in plan={{"data*tensor": {{...}}}}'
    )


class PatternMatchesNoModule(ShardcError):
    """A pattern in a plan of styles matches no module and no parameter of the model."""

    template = "pattern {pattern!r} of the plan, with the style {style}, matches no module of the model"
    hint = "the nearest names are {nearest}"


class StylesDisagree(ShardcError):
    """Two styles shard one parameter differently: a tied weight under two names, or two patterns."""

    template = (
        "{first!r} and {second!r} of the plan both name the parameter {name!r}, but shard it differently"
    )
    hint = "give both the same style, or drop one; the weight of tied layers is one parameter"


class MixedPlan(ShardcError):
    """A mapping mixes several kinds of values: styles, shardings, plans of stages."""

    template = "the plan mixes {kinds} in one mapping"
    hint = (
        'use one kind in each mapping, and combine mappings by presets: plan={{"zero3*tensor": '
        '{{"w1": ColwiseParallel()}}, "pipeline": model.pp_plan}}'
    )


class PlanHasNoPreset(ShardcError):
    """A plan of styles is under presets that do not take it: ``{"data": {"w1": ColwiseParallel()}}``."""

    template = "{key!r} holds a plan of {kind}, which none of its presets accepts"
    hint = "{kind} go to {presets}, as in plan={{{example!r}: {{...}}}}"


class NoPlanOfModel(ShardcError):
    """``plan="experts"`` was given for a model without an ``ep_plan``, or whose plan shards nothing."""

    template = "preset 'experts' reads the model's ep_plan, but {model} has none that shards a parameter"
    hint = (
        'pass a plan for the experts: plan={{"experts": {{"layers.*.mlp.experts.down_proj": '
        '"grouped_gemm"}}}}'
    )


class BadStagePlan(ShardcError):
    """A ``pp_plan`` defines no valid stages: unknown modules, too few of them, or no values between them."""

    template = "the plan of stages does not give {stages} stages: {problem}"
    hint = (
        'a plan of stages is {{"layers": (["hidden_states"], ["hidden_states"])}}: modules, what they take '
        'and what they give; stages=["layers.2"] names the cuts themselves'
    )
