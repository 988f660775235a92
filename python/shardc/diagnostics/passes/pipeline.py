"""Errors of pipelines: schedules that cannot run, and their files."""

from shardc.diagnostics.base import ShardcError


class PipelineError(ShardcError):
    """Base of errors in pipelines."""


class BadAction(PipelineError):
    """An action of a schedule is not written as stage, kind and micro-batch.

    Fails: ``F0``. Works: ``2F0``.
    """

    template = "{text!r} is no action of a pipeline"
    hint = "write stage, kind (F, B, I or W) and micro-batch, such as 2F0"


class ScheduleStuck(PipelineError):
    """Ranks of a schedule wait for each other forever."""

    template = "schedule {schedule} is stuck: its ranks wait at {actions}, none of which can run"
    hint = (
        "an action must stand behind what it needs, and a cap on memory leave room for every stage of a rank"
    )


class BadSchedule(PipelineError):
    """A schedule lacks an action, repeats one, or has one where it can never run."""

    template = "schedule {schedule} cannot run: {action} {problem}"
    hint = (
        "every stage needs F and B (or I and W) of each micro-batch once, on one rank, behind F of the stage "
        "before and B or I of the stage behind"
    )


class TooMuchMemory(PipelineError):
    """A rank would hold more activations at a time than its limit allows."""

    template = (
        "schedule {schedule} makes rank {rank} hold {held:,.0f} bytes of activations in {action}; it may "
        "hold {cap:,.0f}"
    )
    hint = "take a schedule with fewer micro-batches in flight, or recompute activations"


class UnknownSchedule(PipelineError):
    """No schedule has this name. Fails: ``schedule("zbv", ...)``. Works: ``schedule("zb-v", ...)``."""

    template = "there is no schedule {name!r}{nearest}"
    hint = "take one of {known}"


class UnknownScheduleOption(PipelineError):
    """A schedule was given an option that it does not have."""

    template = "the schedule {schedule} has no option {option!r}; it has: {known}"
    hint = "leave the option out, or take a schedule that has it"


class BadScheduleOption(PipelineError):
    """An option of a schedule has a value that it cannot take."""

    template = "the schedule {schedule} cannot take {option}={value}: it must be {must}"
    hint = "take {option}={nearest}"


class BadStages(PipelineError):
    """A schedule cannot place this number of stages on this number of ranks.

    Fails: ``schedule("zb-v", 6, 8, ranks=2)``. Works: ``schedule("zb-v", 4, 8, ranks=2)``, two stages a rank.
    """

    template = "the schedule {schedule} cannot put {stages} stages on {ranks} ranks: it takes {takes}"
    hint = "{nearest}"


class TooLargeToPlay(ShardcError):
    """A schedule has so many actions that making and checking it would take minutes."""

    template = (
        "{stages} stages on {ranks} ranks with {micro_batches} micro-batches are too many to play through"
    )
    hint = "there can be {most} stages and ranks, and {pairs} stages times micro-batches"


class BadMicroBatches(PipelineError):
    """A schedule does not allow this number of micro-batches: too few, or not a multiple that it needs."""

    template = "the schedule {schedule} on {ranks} ranks needs {needs}, and got {micro_batches}"
    hint = "take {nearest}, the nearest number that it can be made of"


class NoScheduleFits(PipelineError):
    """No schedule keeps every rank within the memory limit."""

    template = (
        "no schedule for {ranks} ranks and {micro_batches} micro-batches keeps each rank within {cap:,.0f} "
        "bytes; of those with a name {schedule} needs the least, {least:,.0f}"
    )
    hint = "allow more memory, recompute activations, or take smaller micro-batches"


class ScheduleWithoutCluster(PipelineError):
    """``schedule="auto"`` was given without a cluster that its costs depend on."""

    template = "schedule 'auto' needs to know the cluster that the step is for"
    hint = "name it, as in cluster='h100-8x8' (8 nodes of 8), or give its file; 'local' is this machine's CPU"


class WrongStages(PipelineError):
    """A schedule is for another number of stages, ranks or micro-batches than the step has."""

    template = "the schedule {schedule} is for {found} {what}, not for {wanted}"
    hint = "take a schedule for {wanted} {what}, or {found} {what}"


class BadTransfers(PipelineError):
    """Sends and receives of a schedule do not match, or wait for each other forever."""

    template = "schedule {schedule} cannot run with {mode} sends: {step} on rank {rank} {problem}"
    hint = (
        "every value that another rank needs is sent and received once, in one order on both sides of a pair "
        "of ranks; passes/pipeline/ranks/transfers.py places them so that any schedule runs"
    )


class BadCollective(PipelineError):
    """Collectives of a stage's parameters or gradients are misplaced and move wrong values."""

    template = "schedule {schedule} cannot run: {step} on rank {rank} {problem}"
    hint = (
        "UNSHARD stands before a stage's actions, RESHARD behind those that read what it gathered, and "
        "REDUCE_GRAD once, behind the stage's last backward; passes/pipeline/ranks/collectives.py places "
        "them so"
    )


class TooManyBuffers(PipelineError):
    """A rank would keep more received but unused values than it has buffers."""

    template = (
        "schedule {schedule} makes rank {rank} keep {kept} received values at {step}; it has room for {room}"
    )
    hint = "give it more buffers, or take a schedule whose ranks run less far ahead of each other"


class BadTrace(PipelineError):
    """A trace of a measured run cannot be read as a pipeline's timeline."""

    template = "the trace cannot be read: {problem}"
    hint = "name a Chrome trace whose events are named by action, such as 2F0 or PP:2F0"


class BadTimes(PipelineError):
    """The text of ``--times`` is not a list of seconds. Bad: ``1;2``. Good: ``1,1,0.5,0.1``."""

    template = "the times {text!r} can't be read: {problem}"
    hint = "give seconds of F, I and W of a stage, and of sending, such as --times 1,1,1,0.1"


class BadOptionText(PipelineError):
    """The text of ``--option`` is not a name and a whole number. Bad: ``slices``. Good: ``slices=2``."""

    template = "the option {text!r} can't be read"
    hint = "write it as a name and a whole number, such as --option slices=2"


class NotMeasured(PipelineError):
    """A measured run lacks the actions of a stage from which its times are taken."""

    template = "the run has no {kind} of stage {stage}, nor a whole backward to take it from"
    hint = "give a run of as many stages, with every action in its trace"


class NoMicroBatches(PipelineError):
    """A step for a pipeline has no loop over micro-batches.

    Fails: ``mesh={"pipe": 2}, plan="pipeline"``. Works:
    ``mesh={"pipe": 2}, plan="pipeline", micro_batches=4``.
    """

    template = "a pipeline runs micro-batches, and nothing in this step is cut into any"
    hint = "pass micro_batches=n, from 2, to compile_step; the batch is dim 0 of the inputs"


class SeveralLoops(PipelineError):
    """A value of all micro-batches is needed within forward or backward, as batch norm's statistics are."""

    template = "forward and backward of one micro-batch cannot run without waiting for the others"
    hint = (
        "pass per_micro_batch=True (--per-micro-batch) to compute statistics and loss of each micro-batch by "
        "itself, which changes the mathematics; or replace what mixes samples of a batch, such as batch norm "
        "by group norm; or do without a pipeline"
    )


class BadSpeeds(PipelineError):
    """The speeds of a pipeline's ranks are not one number above 0 for each.

    Fails: ``mesh={"pipe": 2}, speeds=[3]``. Works: ``mesh={"pipe": 2}, speeds=[3, 1]``.
    """

    template = "speeds={given} is not one number above 0 for each of the pipeline's {ranks} ranks"
    hint = "give a speed for each rank; only their proportions count"


class TooManyStages(PipelineError):
    """There are more stages than places at which the forward can be cut."""

    template = "{stages} stages need {stages} ops that depend on parameters; forward has {most}"
    hint = "take at most {most} stages"


class UnknownCut(PipelineError):
    """A stage is to start at a module that does not exist or has no parameters."""

    template = "no module {name!r} with parameters runs in the forward; the nearest is {nearest!r}"
    hint = "name modules as in model.named_modules(), such as stages=[{nearest!r}]"


class CutOrder(PipelineError):
    """The modules at which stages start are not in the order in which they run."""

    template = "a stage cannot start at {name!r}: {problem}"
    hint = "name the first module of each stage but the first, in the order in which they run"


class WrongRecompute(PipelineError):
    """Policies of recomputation do not match the number of stages.

    Fails: ``recompute=["full"]`` for two stages. Works: ``recompute="full"``, ``recompute=["full", "none"]``.
    """

    template = "{problem}"
    hint = "take none, full or selective, one for all stages or a list with one for each: {nearest}"


class NoCutFits(PipelineError):
    """In every cut of the step into stages, a device would exceed its memory limit."""

    template = (
        "no cut into {stages} stages was found that keeps each device within {cap:,.0f} bytes; the nearest, "
        "before {cuts}, makes those of rank {rank} hold {least:,.0f}: {state:,.0f} of parameters, gradients "
        "and optimizer state, {activations:,.0f} of activations"
    )
    hint = (
        'allow {least:,.0f} bytes, recompute activations (recompute="full"), take smaller micro-batches or a '
        'schedule with fewer in flight, or shard state too (plan="pipeline*zero1")'
    )


class NotAPipeline(PipelineError):
    """A schedule or stages were given for a plan without a pipeline.

    Fails: ``plan="data", schedule="1f1b"``. Works: ``plan="pipeline*data", schedule="1f1b"``.
    """

    template = "plan {plan!r} has no pipeline, so it takes no schedule, no stages and no recomputation"
    hint = 'add one, as in plan="pipeline*data" with mesh={{"pipe": 2, "data": 2}}'


class ReshardOfStages(PipelineError):
    """``reshard_after_forward``, which is for plans without a pipeline, was given with a pipeline.

    Fails: ``plan="pipeline*zero3", reshard_after_forward=False``.
    Works: ``plan="pipeline*zero3", gather="step"``.
    """

    template = "stages of a pipeline keep what they gather by gather=, not by reshard_after_forward="
    hint = 'pass gather="step"'


class RerunOfParts(PipelineError):
    """``on_overflow="rerun"`` was given for a step that consists of several programs.

    Fails: ``plan="pipeline*expert", expert_capacity=1.5, on_overflow="rerun"``.
    Works: the same with ``on_overflow="stop"``, or ``plan="data*expert"``.
    """

    template = "on_overflow='rerun' runs a whole step again, and here {parts} are programs of their own"
    hint = "leave on_overflow out, or expert_capacity: then there is room for all rows"


class BadScheduleFile(PipelineError):
    """A schedule's file is missing or cannot be read."""

    template = "the schedule {path} can't be read: {problem}"
    hint = "give a CSV file with a row for each rank and cells such as 2F0, or the name of a schedule"


class ChangesMathematics(PipelineError):
    """A schedule changes the mathematics of training, and the user did not allow that.

    Fails: ``schedule="pipedream-2bw"``. Works: ``schedule="pipedream-2bw", stale_weights=True``.
    """

    template = (
        "the schedule {schedule} changes the mathematics: stages update their weights while micro-batches "
        "are in flight, so gradients of older weights are applied to newer ones"
    )
    hint = (
        "pass stale_weights=True (--stale-weights) if that is wanted, or take 1f1b, whose steps are those of "
        "one device"
    )


class OneUpdateForAll(PipelineError):
    """A schedule lets stages update their weights separately, but the update needs several stages at once.

    Fails: clipping by the norm of all gradients, or tied embeddings, with ``schedule="pipedream"``.
    """

    template = (
        "{name} cannot be updated by one stage while others are ahead of it: stages {stages} take part, as "
        "{cause}"
    )
    hint = (
        "leave out clipping by the norm of all gradients, untie weights or put the modules that share them "
        "in one stage; or take a schedule that updates once, such as 1f1b"
    )


class OneRouteOnly(PipelineError):
    """A schedule with several routes holds weights twice, so its stages cannot update them separately."""

    template = "the schedule {schedule} has {routes} routes, whose stages hold the same weights"
    hint = "updates while micro-batches are in flight need one route, as pipedream has"


class NotCausal(PipelineError):
    """A schedule slices sequences, but an op mixes tokens other than by causal attention.

    Fails: an encoder's attention, a convolution or a mean over the sequence, with ``schedule="terapipe"``.
    """

    template = "the tokens of a sequence cannot run slice by slice: {op}: {why}"
    hint = (
        "slices need a model that is causal along dim 1 of its inputs, with attention that says is_causal; "
        "or take a schedule of whole sequences, such as 1f1b"
    )


class TooFewTokens(PipelineError):
    """A sequence has fewer tokens than the schedule has slices."""

    template = "the schedule {schedule} cuts sequences into {slices} slices, and they have {tokens} tokens"
    hint = "take at most {tokens} slices; the sequence is dim 1 of the inputs"


class ScheduleNotYet(PipelineError):
    """A schedule can be made, checked and simulated, but steps cannot be compiled for it yet."""

    template = "a step cannot be cut for the schedule {schedule} yet: {why}"
    hint = "take a schedule of whole sequences with one update a step, such as 1f1b or zb-v"
