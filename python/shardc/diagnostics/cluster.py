"""Errors in descriptions of clusters, and in meshes on a cluster."""

from shardc.diagnostics.base import ShardcError


class ClusterError(ShardcError):
    """Base of errors in a cluster's description. ``key``: the field at fault, which gives the line."""


class UnknownCluster(ClusterError):
    """``cluster="h200-8x"``: neither the name of a cluster nor a file. Works: ``h200``, ``h200-8x64``."""

    template = "there is no cluster {name!r}{nearest}"
    hint = (
        "name a node ({known}), several nodes (h100-8x64: 64 nodes of 8 devices), local for this "
        "machine, or a YAML file"
    )


class UnreadableCluster(ClusterError):
    """The file of a cluster cannot be read or is not YAML."""

    template = "the cluster {path} {problem}"
    hint = "follow the format of the files in shardc/cost/cluster/ready"


class UnknownClusterKey(ClusterError):
    """A description of a cluster has an unknown key.

    Fails: ``bandwith_bytes_s``. Works: ``bandwidth_bytes_s``.
    """

    template = "{of} has no key {key!r}{nearest}"
    hint = "keys are {known}"


class MissingClusterKey(ClusterError):
    """A description of a cluster lacks a required key."""

    template = "{of} has no {key!r}"
    hint = "add {key}: {expected}"


class BadClusterValue(ClusterError):
    """A value in a cluster's description has the wrong type or range, such as a rate of zero."""

    template = "{key} of {of} is {given}, not {expected}"
    hint = "{says}"


class LinksDoNotConnect(ClusterError):
    """The levels of a cluster's links do not join its devices."""

    template = "the links of cluster {name!r} do not connect its devices: {problem}"
    hint = (
        "list the levels from the innermost to the outermost; the product of their ways must be the "
        "number of devices"
    )


class TwoOfOneName(ClusterError):
    """Two kinds of devices, or two levels of links, have the same name."""

    template = "two {what} of cluster {name!r} are called {key!r}"
    hint = "give each a name of its own"


class BadClusterSize(ClusterError):
    """A name such as ``h100-16x4`` asks for more devices than a node has, or for more levels than exist."""

    template = "there is no cluster {name!r}: {problem}"
    hint = "use for example {example}, which has {count} devices"


class MeshDoesNotFit(ShardcError):
    """A mesh has more devices than the cluster."""

    template = "the mesh {mesh} has {size} devices, but cluster {name!r} has {count}"
    hint = "use a smaller mesh, or a larger cluster{example}"


class UnknownAlgorithm(ShardcError):
    """The algorithm does not exist, or cannot run this collective on these links."""

    template = "{kind} has no algorithm {name!r} here{nearest}"
    hint = "algorithms are {known}"


class ProbeFailed(ShardcError):
    """``cluster="local"``: two processes of this machine could not measure their messages."""

    template = "two processes could not measure messages between them: {problem}"
    hint = (
        "check that torch.distributed works with Gloo on this machine, or describe the machine in a YAML file"
    )
    exit_code = 1
