"""Errors of planning: models' configs, requested plans, and devices that are too small."""

from shardc.diagnostics.base import ShardcError


class BadModelConfig(ShardcError):
    """A ``config.json`` is no config of a transformers model, or no model can be built from it."""

    template = "the model's config cannot be used: {problem}"
    hint = "give the config.json of a language model, or a script with build(), as shardc compile takes it"


class UnknownArchitecture(ShardcError):
    """transformers has no language model of this ``model_type``."""

    template = "transformers has no language model of the type {kind!r}; the nearest is {nearest!r}"
    hint = "correct model_type, install a newer transformers, or give a script with build()"


class BadWhatIf(ShardcError):
    """A change that cannot be read. Bad: ``--what-if faster=2``. Good: ``--what-if links=2x``."""

    template = "the change {text!r} cannot be made: {problem}"
    hint = "change one of {known}, by a factor (links=2x) or to a value (memory=141GB)"


class BatchDoesNotDivide(ShardcError):
    """No mesh of these devices has a data axis that divides the batch."""

    template = "no plan on {devices} devices of {cluster} divides a batch of {batch} evenly"
    hint = "give --batch a multiple of the devices, such as --batch {example}, or name a --mesh"


class NotAModel(ShardcError):
    """The argument of ``shardc plan`` is neither a script nor a config."""

    template = "{path} is neither a script nor a config of a model"
    hint = "name a Python file with build(), or the config.json of a transformers model"


class SizesOfScript(ShardcError):
    """A script builds its own batch, so an option for its size does not apply."""

    template = (
        "--{option} and --what-if {option}= are for a config.json: a script's build() gives the batch, "
        "and its model the precision"
    )
    hint = "change build(), or leave the option out"


class NoHostMemory(ShardcError):
    """The optimizer's state is to be offloaded, but the cluster's description has no host memory."""

    template = "cluster {cluster} describes no host memory, into which --offload moves the optimizer's state"
    hint = "add host: with memory_bytes and bytes_s to the cluster's file, or leave --offload out"


class OffloadNotYet(ShardcError):
    """A step was compiled with an offloaded optimizer, which is not supported yet.

    Fails: ``compile_step(..., offload="optimizer")``. Works: ``shardc plan ... --offload optimizer``.
    """

    template = "a step with its {what} state in the host's memory cannot be compiled yet"
    hint = (
        "leave offload= out; shardc plan --offload {what} estimates it, and plans such as zero1 shard"
        " the state over devices"
    )
