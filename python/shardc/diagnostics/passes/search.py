"""Errors of the search over plans."""

from shardc.diagnostics.base import ShardcError


class NoPlanFound(ShardcError):
    """However a step's calls are cut, a device holds more than it has, or no such cuts were found in time."""

    template = "the search found no plan with which {devices} devices of {memory} hold the step"
    hint = "use more devices, a smaller batch, or recompute='full'; shardc plan says what a named plan needs"


class ConstraintNotSearched(ShardcError):
    """``shardc.constrain`` asks for a layout that a search does not look at.

    Fails: a dim that the axes ``tensor`` and ``data`` cut in this order, on a mesh that has ``data`` first.
    """

    template = "the search for a plan knows no layout {layout}"
    hint = "let axes that cut one dim stand in the mesh's order, or name a plan"


class NotSearched(ShardcError):
    """``plan="auto"`` beside an option that the search does not know yet.

    Fails: ``plan="auto", micro_batches=4``. Works: ``plan="data*tensor", micro_batches=4``.
    """

    template = "plan 'auto' does not go together with {option} yet"
    hint = "leave {option} out, or name a plan: data, zero3, or a product such as 'data*tensor'"


class SearchWithoutCluster(ShardcError):
    """``plan="auto"`` on a machine with GPUs, without a cluster to search for."""

    template = "plan 'auto' needs to know the cluster that the step is for"
    hint = "name it, as in cluster='h100-8x8' (8 nodes of 8), or give its file; 'local' is this machine's CPU"


class AutoInProduct(ShardcError):
    """A product of presets has ``auto`` as a factor. The search decides about all axes."""

    template = "plan {plan!r}: 'auto' stands alone, it decides about every axis of the mesh"
    hint = "write plan='auto', or name a preset for each axis"


class MeshNotSearched(ShardcError):
    """``plan="auto"`` on a mesh of three axes and more: there are too many ways to cut a call."""

    template = "the search for a plan looks at meshes of up to {most} axes; this one has {axes}"
    hint = "give it fewer and larger axes, as in mesh={{'data': 8, 'tensor': 8}}, or name a plan"
