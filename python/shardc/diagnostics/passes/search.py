"""Errors of the search for plans."""

from shardc.diagnostics.base import ShardcError


class NoPlanFound(ShardcError):
    """With every plan a device's memory is too small, or no plan that fits was found in time.

    ``least``: text on what a device needs at least, if that is more than it has; else empty.
    """

    template = "the search found no plan that fits the step into {devices} devices of {memory}{least}"
    hint = (
        "use more or larger devices, or a smaller batch or length; if micro-batches and recomputation are "
        "given, leave them out; shardc plan shows what a named plan needs"
    )


class NoPlanYet(ShardcError):
    """A search ended, by its time limit or by Ctrl-C, before it found a plan that fits.

    Fails: ``shardc plan config.json -c h100-8x8 --plan auto --search-seconds 0.1``.
    """

    template = "the search ended before it found a plan: {why}"
    hint = (
        "give it more time (search_seconds=, --search-seconds), or fewer choices: name the mesh, the "
        "micro-batches, recompute='full'"
    )


class SolverFailed(ShardcError):
    """The process that solves a search's network failed, or toulbar2 is not installed."""

    template = "the search's solver, toulbar2, failed: {problem}"
    hint = "check that it can be imported: python -c 'import pytoulbar2'; else name a plan, such as 'zero3'"


class NothingSearched(ShardcError):
    """An option of searches was given without a search.

    Fails: ``plan="zero3", search_seconds=10``. Works: ``plan="auto", search_seconds=10``.
    """

    template = "{option} applies to a search, but no plan is searched{missing}"
    hint = "ask for a search with plan 'auto', or leave {option} out"


class ContradictingLimits(ShardcError):
    """Options that a user fixed leave a search no choice; the error names the smallest such set.

    Fails: ``search_limits={"stages": 1}, schedule="zb-h1"``. Works: either of the two.
    """

    template = "no plan for {samples} samples and {devices} devices has {options}"
    hint = "leave out or change one of them"


class NoTrials(ShardcError):
    """``search_trials`` was given where no plan can be tried.

    Fails: ``plan="auto", mesh={"data": 2}, search_trials=4``. Works: ``plan="auto", search_trials=4`` in
    processes that torchrun started.
    """

    template = "no plan can be tried: {problem}"
    hint = "leave search_trials out; or start processes with torchrun, and ask for plan 'auto' without a mesh"


class ConstraintNotSearched(ShardcError):
    """``shardc.constrain`` requires a layout that the search does not consider.

    Fails: a dim that the axes ``tensor`` and ``data`` cut in this order, on a mesh that has ``data`` first.
    """

    template = "the search does not support the layout {layout} of a constraint"
    hint = "list axes that shard one dim in the mesh's order, or name a plan"


class NotSearched(ShardcError):
    """``plan="auto"`` was given with an option that the search does not support yet.

    Fails: ``plan="auto", memory_budget="8GB"``. Works: ``plan="data*tensor", memory_budget="8GB"``.
    """

    template = "plan 'auto' does not support {option} yet"
    hint = "leave {option} out, or name a plan: data, zero3, or a product such as 'data*tensor'"


class SearchWithoutCluster(ShardcError):
    """``plan="auto"`` was given on a machine with GPUs, but without a cluster."""

    template = "plan 'auto' needs the cluster that the step runs on"
    hint = (
        "pass cluster='h100-8x8' (8 nodes of 8 devices), or the path of its file; 'local' is this "
        "machine's CPU"
    )


class AutoInProduct(ShardcError):
    """A product combines ``auto`` with another preset than ``pipeline``, but a search decides on all axes.

    Fails: ``plan="data*auto"``. Works: ``plan="auto"``, ``plan="pipeline*auto"``.
    """

    template = (
        "plan {plan!r} combines 'auto' with other presets, but a search decides on all axes except a "
        "pipeline's"
    )
    hint = "write plan='auto' or plan='pipeline*auto', or name a preset for each axis"


class NothingToSearchFor(ShardcError):
    """``plan="auto"`` was given with neither a mesh nor a cluster, in a process that runs alone.

    Fails: ``compile_step(model, optimizer, batch, plan="auto")`` in a script that ``python`` started.
    Works: the same with ``cluster="h100-8x8"``, or started by ``torchrun --nproc-per-node 4``.
    """

    template = "plan 'auto' was given neither a mesh nor a cluster, and this process runs alone"
    hint = "pass cluster='h100-8x8' (8 nodes of 8 devices) or a mesh, or start with torchrun"


class ElasticNotSearched(ShardcError):
    """``shardc plan --elastic`` was given with a mesh or a named plan, which fix the number of devices.

    Works: ``shardc plan config.json -c h100-8x4 --plan auto --elastic 2``.
    """

    template = "--elastic searches plans for fewer devices, but a mesh or a named plan fixes their number"
    hint = "give --plan auto and no --mesh"


class CutsDoNotFit(ShardcError):
    """The cuts in a saved plan do not fit the calls of this step.

    The plan was changed by hand, or saved by another version of shardc.
    """

    template = "the saved plan's choices for calls do not fit this step: {problem}"
    hint = "save the plan again, or remove its field 'cuts': then only layouts of arguments decide"
