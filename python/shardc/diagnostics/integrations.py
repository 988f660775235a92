"""Errors of the integrations with trainers of other packages."""

from shardc.diagnostics.base import ShardcError


class PackageMissing(ShardcError):
    """The package of an imported integration is not installed or too old."""

    template = "shardc.integrations.{name} needs {package} {oldest} or newer, and {found}"
    hint = "install it: pip install '{package}>={oldest}'"


class TrainerArgumentRefused(ShardcError):
    """A trainer has a setting that a compiled step cannot honour.

    Fails: ``TrainingArguments(fp16=True)``. Works: ``TrainingArguments(bf16=True)``.
    """

    template = "{argument}={value!r} is not supported: {reason}"
    hint = "{instead}"


class BatchesDiffer(ShardcError):
    """The micro-batches of one update cannot be joined to a global batch."""

    template = "the micro-batches of an update cannot be joined to one global batch: {problem}"
    hint = "pad all batches to one length, for instance with a collator that has padding='max_length'"


class CheckpointOfAnother(ShardcError):
    """Training was to resume from a checkpoint without the state of a compiled step."""

    template = (
        "{folder} has no {part}: it was not written by ShardedTrainer, or it was written with "
        "save_only_model=True"
    )
    hint = (
        "to start from its weights alone, pass model=AutoModel...from_pretrained({folder!r}) and do "
        "not resume"
    )
