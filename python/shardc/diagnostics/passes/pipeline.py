"""Errors of pipelines: schedules that cannot run, and their files."""

from shardc.diagnostics.base import ShardcError


class PipelineError(ShardcError):
    """Base of errors in pipelines."""


class BadAction(PipelineError):
    """An action of a schedule is not written as stage, kind and micro-batch.

    Fails: ``F0``. Works: ``2F0``.
    """

    template = "{text!r} is not an action of a pipeline"
    hint = "write stage, kind (F, B, I or W) and micro-batch, such as 2F0"


class BadEviction(PipelineError):
    """An eviction of activations to another rank cannot run.

    Fails: ``0EVICT1 to 0, 0 until 2``. Works: ``0EVICT1 to 3, 0 until 2``.
    """

    template = "the eviction {eviction} {problem}"
    hint = (
        "write it as in 0EVICT1 to 3, 0 until 2: stage, micro-batch, another rank, and how many actions that "
        "rank has run when it receives and when it sends back; balance_activations=True writes evictions"
    )


class ScheduleStuck(PipelineError):
    """Ranks of a schedule wait for each other forever."""

    template = "schedule {schedule} deadlocks: its ranks wait at {actions}, none of which can run"
    hint = (
        "place each action behind the actions that it needs; a memory limit must leave room for every"
        " stage of a rank"
    )


class BadSchedule(PipelineError):
    """A schedule lacks an action, repeats one, or has one where it can never run."""

    template = "schedule {schedule} cannot run: {action} {problem}"
    hint = (
        "every stage needs F and B (or I and W) of each micro-batch once, on one rank: F behind F of "
        "the previous stage, B or I behind B or I of the next stage"
    )


class TooMuchMemory(PipelineError):
    """A rank would hold more activations at a time than its limit allows."""

    template = (
        "schedule {schedule} makes rank {rank} hold {held:,.0f} bytes of activations in {action}; its"
        " limit is {cap:,.0f}"
    )
    hint = "use a schedule with fewer micro-batches in flight, or recompute activations"


class UnknownSchedule(PipelineError):
    """No schedule has this name. Fails: ``schedule("zbv", ...)``. Works: ``schedule("zb-v", ...)``."""

    template = "there is no schedule {name!r}{nearest}"
    hint = "use one of {known}"


class UnknownScheduleOption(PipelineError):
    """A schedule was given an option that it does not have."""

    template = "the schedule {schedule} has no option {option!r}; it has: {known}"
    hint = "leave the option out, or use a schedule that has it"


class BadScheduleOption(PipelineError):
    """An option of a schedule has a value that it cannot take."""

    template = "the schedule {schedule} cannot take {option}={value}: it must be {must}"
    hint = "use {option}={nearest}"


class BadStages(PipelineError):
    """A schedule cannot place this number of stages on this number of ranks.

    Fails: ``schedule("zb-v", 6, 8, ranks=2)``. Works: ``schedule("zb-v", 4, 8, ranks=2)``, two stages a rank.
    """

    template = "the schedule {schedule} cannot put {stages} stages on {ranks} ranks: it takes {takes}"
    hint = "{nearest}"


class TooLargeToPlay(ShardcError):
    """A schedule has so many actions that making and checking it would take minutes."""

    template = "{stages} stages on {ranks} ranks with {micro_batches} micro-batches are too many to simulate"
    hint = "use at most {most} stages and ranks, and at most {pairs} stages times micro-batches"


class BadMicroBatches(PipelineError):
    """A schedule does not allow this number of micro-batches: too few, or not a multiple that it needs."""

    template = "the schedule {schedule} on {ranks} ranks needs {needs}, not {micro_batches}"
    hint = "use {nearest}, the nearest number that works"


class NoScheduleFits(PipelineError):
    """No schedule keeps every rank within the memory limit."""

    template = (
        "no schedule for {ranks} ranks and {micro_batches} micro-batches keeps each rank within "
        "{cap:,.0f} bytes; the named schedule that needs the least, {schedule}, needs {least:,.0f}"
    )
    hint = "allow more memory, recompute activations, or use smaller micro-batches"


class ScheduleWithoutCluster(PipelineError):
    """``schedule="auto"`` was given without a cluster that its costs depend on."""

    template = "schedule 'auto' needs the cluster that the step runs on"
    hint = (
        "pass cluster='h100-8x8' (8 nodes of 8 devices), or the path of its file; 'local' is this "
        "machine's CPU"
    )


class WrongStages(PipelineError):
    """A schedule is for another number of stages, ranks or micro-batches than the step has."""

    template = "the schedule {schedule} is for {found} {what}, not for {wanted}"
    hint = "use a schedule for {wanted} {what}, or {found} {what}"


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
    hint = "allow more buffers, or use a schedule whose ranks run less far ahead of each other"


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

    template = "the trace has no {kind} of stage {stage}, and no whole backward from which to derive it"
    hint = "use the trace of a run with as many stages that recorded every action"


class NoMicroBatches(PipelineError):
    """A step for a pipeline has no loop over micro-batches.

    Fails: ``mesh={"pipe": 2}, plan="pipeline"``. Works:
    ``mesh={"pipe": 2}, plan="pipeline", micro_batches=4``.
    """

    template = "a pipeline needs micro-batches, but nothing in this step is split into any"
    hint = "pass micro_batches=n to compile_step, n being 2 or more; dim 0 of the inputs is split"


class SeveralLoops(PipelineError):
    """A value of all micro-batches is needed within forward or backward, as batch norm's statistics are."""

    template = (
        "forward or backward of one micro-batch needs values of all others, so micro-batches cannot "
        "run separately"
    )
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
    hint = "give one speed for each rank; only their ratios count"


class TooManyStages(PipelineError):
    """There are more stages than places at which the forward can be cut."""

    template = "{stages} stages need {stages} ops that depend on parameters, but the forward has {most}"
    hint = "use at most {most} stages"


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
    hint = "pass none, full or selective for all stages, or a list with one for each stage: {nearest}"


class NoCutFits(PipelineError):
    """In every cut of the step into stages, a device would exceed its memory limit."""

    template = (
        "no division into {stages} stages was found that keeps each device within {cap:,.0f} bytes; "
        "in the nearest, with stages that start at {cuts}, devices of rank {rank} hold {least:,.0f}: "
        "{state:,.0f} of parameters, gradients and optimizer state, {activations:,.0f} of activations"
    )
    hint = (
        'allow {least:,.0f} bytes, recompute activations (recompute="full"), use smaller '
        "micro-batches or a schedule with fewer in flight, or also shard state "
        '(plan="pipeline*zero1")'
    )


class NotAPipeline(PipelineError):
    """A schedule or stages were given for a plan without a pipeline.

    Fails: ``plan="data", schedule="1f1b"``. Works: ``plan="pipeline*data", schedule="1f1b"``.
    """

    template = "plan {plan!r} has no pipeline, so schedule=, stages= and recomputation per stage do not apply"
    hint = 'add one, as in plan="pipeline*data" with mesh={{"pipe": 2, "data": 2}}'


class ReshardOfStages(PipelineError):
    """``reshard_after_forward``, which is for plans without a pipeline, was given with a pipeline.

    Fails: ``plan="pipeline*zero3", reshard_after_forward=False``.
    Works: ``plan="pipeline*zero3", gather="step"``.
    """

    template = (
        "reshard_after_forward= is not for pipelines, where gather= decides how long gathered "
        "parameters are kept"
    )
    hint = 'pass gather="step" to keep them for a whole step'


class RerunOfParts(PipelineError):
    """``on_overflow="rerun"`` was given for a step that consists of several programs.

    Fails: ``plan="pipeline*expert", expert_capacity=1.5, on_overflow="rerun"``.
    Works: the same with ``on_overflow="stop"``, or ``plan="data*expert"``.
    """

    template = "on_overflow='rerun' runs a whole step again, but here {parts} are separate programs"
    hint = "leave on_overflow out, or leave expert_capacity out: then there is room for all rows"


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
        "pass stale_weights=True (--stale-weights) to allow this, or use 1f1b, whose steps equal "
        "those of one device"
    )


class OneUpdateForAll(PipelineError):
    """A schedule lets stages update their weights separately, but the update needs several stages at once.

    Fails: clipping by the norm of all gradients, or tied embeddings, with ``schedule="pipedream"``.
    """

    template = (
        "{name} cannot be updated by one stage while others are ahead of it: the update involves "
        "stages {stages}, because {cause}"
    )
    hint = (
        "leave out clipping by the norm of all gradients, untie weights or put the modules that share"
        " them in one stage; or use a schedule that updates once, such as 1f1b"
    )


class OneRouteOnly(PipelineError):
    """A schedule with several routes holds weights twice, so its stages cannot update them separately."""

    template = (
        "the schedule {schedule} has {routes} routes, whose stages hold the same weights and cannot "
        "update them separately"
    )
    hint = "use a schedule with one route, such as pipedream"


class StageNotRead(PipelineError):
    """A stage needs values of another one which, by the schedule's ``reads``, it does not read.

    Fails: ``reads=((), (), ())`` for three layers one after the other. Works: ``schedule="1f1b"``, made for
    what the program's stages read.
    """

    template = (
        "stage {reader} needs values of stage {maker}, which it does not read in the schedule {schedule}"
    )
    hint = "let it read {needed} (reads=...), or pass the schedule's name: it is then made for the stages"


class NotCausal(PipelineError):
    """A schedule slices sequences, but an op mixes tokens other than by causal attention.

    Fails: an encoder's attention, a convolution or a mean over the sequence, with ``schedule="terapipe"``.
    """

    template = "a sequence cannot run slice by slice through {op}: {why}"
    hint = (
        "use a model that is causal along dim 1 of its inputs, with is_causal=True in its attention; "
        "or use a schedule of whole sequences, such as 1f1b"
    )


class TooFewTokens(PipelineError):
    """A sequence has fewer tokens than the schedule has slices."""

    template = "the schedule {schedule} splits sequences into {slices} slices, but they have {tokens} tokens"
    hint = "use at most {tokens} slices; the sequence is dim 1 of the inputs"


class NoSequence(PipelineError):
    """A schedule slices sequences, but each device has only a part of them, or no input has a second dim.

    Fails: ``plan="pipeline*sequence"`` with ``schedule="seq-1f1b"``.
    """

    template = (
        "the schedule {schedule} slices sequences, which are dim 1 of the inputs, but no input has a dim 1 "
        "that is whole on a device"
    )
    hint = "do not shard the sequence, or use a schedule of whole sequences, such as 1f1b"


class BadSliceLengths(PipelineError):
    """Lengths of slices do not add up to a sequence, or are not one for each slice."""

    template = "the schedule {schedule} has {slices} slices of {tokens} tokens; its lengths are {lengths}"
    hint = "give {slices} lengths of at least 1 that add up to {tokens}, or none for slices of equal time"


class ScheduleNotYet(PipelineError):
    """A schedule can be made, checked and simulated, but steps cannot be compiled for it yet."""

    template = "a step cannot be compiled for the schedule {schedule} yet: {why}"
    hint = "use a schedule of whole sequences with one update per step, such as 1f1b or zb-v"
