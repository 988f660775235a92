"""Errors of ``compile_step`` and of scripts that ``shardc compile`` reads."""

from shardc.diagnostics.base import ShardcError


class MeshIsNotTheWorld(ShardcError):
    """The mesh's size differs from the number of processes that torchrun started."""

    template = "the mesh {mesh} has {size} devices, but {world} processes run"
    hint = "start it with torchrun --nproc-per-node {size}, or change the mesh"


class MeshNotGiven(ShardcError):
    """No mesh was given, which means one device, but torchrun started several processes.

    shardc does not guess which axes they form, and so which rows each trains on.
    """

    template = "no mesh was given, so the step is for one device, but {world} processes run"
    hint = 'pass mesh={{"data": {world}}} to train data parallel, or start one process'


class BadArgument(ShardcError):
    """An argument of the wrong kind. Bad: ``loss="mse"``. Good: ``loss=lambda out, batch: ...``."""

    template = "{argument} is {given}, not {expected}"
    hint = "{hint}"


class ModelChanged(ShardcError):
    """The model or the optimizer changed after the compile, so eager PyTorch would compute something else.

    Fails: a hook, ``requires_grad_(False)`` or another parameter after ``compile_step``. Works: the same
    before it; values written into parameters and buffers; ``model.eval()``, which has a program of its own.
    """

    template = "the model or the optimizer has changed since the step was compiled: {changes}"
    hint = "undo the change before the step runs (of a hook: handle.remove()), or compile another step"


class TooManyShapes(ShardcError):
    """A batch has a new shape, but the step has the maximum number of programs already.

    Fails: texts of 100 lengths, each a batch as long as its text. Works: the same with ``bucket=fn``, which
    pads each batch to one of a few lengths.
    """

    template = "{shape} needs program number {count}, but shapes_limit is {limit}; compiled so far: {seen}"
    hint = (
        "pass bucket=fn to compile_step: fn(batch) pads each batch to one of a few sizes (targets "
        "with a value that the loss ignores, such as ignore_index); or use drop_last=True in the "
        "loader, or raise shapes_limit"
    )


class ShapeNotCompiled(ShardcError):
    """The step's plan does not allow a program for another shape of the batch.

    Fails: one row if ``micro_batches`` cut a pipeline's batch. Works: a row for each of them.
    """

    template = "no program can be compiled for batch {shape}: {reason}"
    hint = (
        "pad the batch with bucket=fn, skip it (drop_last=True in the loader), or compile another step for it"
    )


class BadBucket(ShardcError):
    """The function given as ``bucket=`` did not return a batch.

    Fails: ``bucket=len``. Works: a function that returns a batch like the one that it is given.
    """

    template = "bucket function {name} {problem}"
    hint = "return a batch: the same containers with tensors, padded or unchanged"


class NotEqual(ShardcError):
    """``verify=True`` found that the compiled program differs from the single-device one."""

    template = "the compiled program is not equal to the single-device program\n{table}"
    hint = "please report this with the table: it is a bug in shardc"
    exit_code = 1


class NoValues(ShardcError):
    """Values were requested of a model that is on the meta device or sharded."""

    template = "{name} has no values: the model is on the meta device, or its step runs sharded"
    hint = "build the model on a real device to check it or to save its state"


class ModelIsSharded(ShardcError):
    """A model was called after its first step on several devices, when its parameters are DTensors."""

    template = (
        "{kind} was called, but its parameters are sharded: a compiled step trains them on several devices"
    )
    hint = (
        "call step(batch) to train and step.forward(batch) to run the model; for a plain copy of the model, "
        "write its weights with shardc.export_weights(step, model, folder)"
    )
    exit_code = 1


class ValuesElsewhere(ShardcError):
    """The user read a tensor whose values a step holds and cannot show there."""

    template = "{name!r} has no values to read: {reason}"
    hint = (
        "read dict(step.named_parameters())[{name!r}] or step.state_dict(), on all ranks together; "
        "step.save_checkpoint(folder) writes what all ranks hold"
    )
    exit_code = 1


class StateReplaced(ShardcError):
    """After the first step the user replaced a tensor that the step reads and writes."""

    template = "{name} was replaced after the first step, but the step still reads and writes the old tensor"
    hint = (
        "write into the existing tensor: parameter.copy_(value) under torch.no_grad(), "
        "load_state_dict(values) without assign=, or step.load_state_dict(values)"
    )
    exit_code = 1


class ModelInUse(ShardcError):
    """A parameter cannot be replaced by a DTensor because something besides the model refers to it."""

    template = "{name!r} cannot be replaced by a DTensor at the first step: {reason}"
    hint = (
        "before the first step, delete losses whose autograd graph holds the model's parameters, and "
        "copies of the model that torch.compile made; or pass compile_step a model that nothing else "
        "uses"
    )
    exit_code = 1


class SavedTooLate(ShardcError):
    """The user saved an artefact after the first step on several devices, when the values are sharded."""

    template = (
        "the step was saved after its first run on {count} devices, when its values are sharded; an "
        "artefact holds whole values"
    )
    hint = "save the artefact before the first step, and values with step.save_checkpoint(folder)"
    exit_code = 1


class BadWeights(ShardcError):
    """A folder of weights cannot be read or written, or belongs to another model."""

    template = "{folder} {problem}"
    hint = "{hint}"


class BadScript(ShardcError):
    """A script for ``shardc compile`` does not define a valid ``build()``."""

    template = "{script} {problem}"
    hint = (
        "define build() that returns (model, optimizer, example_batch) or, with a loss function, four values"
    )


class ScriptFailed(ShardcError):
    """The code of a script for ``shardc compile`` raised an error or ended the process."""

    template = "{script} {problem}"
    hint = "make `python {script}` work by itself first; --debug shows the whole traceback"


class NameNotFound(ShardcError):
    """``shardc explain FOLDER NAME`` names no parameter or argument."""

    template = "no parameter or argument of {path} has {name!r} in its name"
    hint = "the nearest names are {nearest}"


class NotTheProgram(ShardcError):
    """The manifest of an artefact does not describe the artefact's level-3 module."""

    template = "the manifest does not describe the program in levels/{level}.mlir: {problem}"
    hint = "one of the two was changed by hand: compile again, or copy the folder again"
    exit_code = 1


class NotAnArtefact(ShardcError):
    """``explain`` cannot read a path."""

    template = (
        "{path} is neither a folder that shardc compile wrote nor its file levels/3-rank.mlir: {problem}"
    )
    hint = "name a folder that shardc compile wrote, or its levels/3-rank.mlir"
