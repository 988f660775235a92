"""Errors of the oracle: programs that cannot be executed, or pairs that cannot be compared."""

from shardc.diagnostics.base import ShardcError


class ExecutionFailed(ShardcError):
    """An op of the program failed when it ran, or its result differs from its type.

    Fails: a rank program whose ``torch.aten.view`` asks for the global shape. Works: the local shape.
    """

    template = "{op} could not be executed: {reason}"
    hint = "the program is wrong at this op; `shardc opt --print-ir-after-all` shows which pass made it"
    exit_code = 1


class NoStep(ShardcError):
    """The module has no function ``@step``, so it is not a training step.

    Fails: a file that holds a mesh alone. Works: a file written by ``shardc compile`` or ``shardc opt``.
    """

    template = "the module has no function @{function} that can be executed"
    hint = "give a module with one `func.func @{function}` that has a body"


class BadArguments(ShardcError):
    """The step received a wrong number of arguments or ranks, or tensors of another shape or dtype."""

    template = "{argument} of @step: {problem}"
    hint = "pass one list of tensors for each argument of @step, with one tensor for each rank of the mesh"


class MissingInput(ShardcError):
    """An argument of the step has no value.

    Fails: inputs without ``("seed", "seed")``. Works: one tensor for each argument's (role, name).
    """

    template = "no value was given for the {role} {name!r}"
    hint = "pass a tensor of shape {shape} for it; the most similar inputs given are {nearest}"


class ProgramsDiffer(ShardcError):
    """Two programs that should be the same step differ in arguments, results or layouts.

    Fails: a rank program that lacks the updated ``layers.0.weight``. Works: one with all results.
    """

    template = "the rank program is not the same step as the global one: {problem}"
    hint = "compile both from the same model and optimizer, with the same version of shardc"
    exit_code = 1


class Deadlock(ShardcError):
    """Every rank of a pipeline waits for a message that no rank will send."""

    template = "the ranks of the pipeline wait for each other forever: {waits}"
    hint = "check the schedule with check_schedule; if it passes, please report this bug with the schedule"
    exit_code = 1


class WrongMessage(ShardcError):
    """A rank of a pipeline receives an unexpected message; messages arrive in the order of sends.

    Fails: two sends to one rank that have changed places. Works: sends in the order of the receives there.
    """

    template = "rank {receiver} gets {sent} from rank {sender} where it expects {wanted}"
    hint = "send to each rank in the order in which it receives; in shardc compile this is a bug: report it"
    exit_code = 1
