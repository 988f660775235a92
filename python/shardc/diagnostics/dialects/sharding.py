"""Errors in the shardings of values."""

from shardc.diagnostics.base import ShardcError


class IndivisibleDim(ShardcError):
    """A dim is to be sharded into equal blocks, but the number of blocks does not divide its size.

    ``x: [6, 8]`` with dim 0 on an axis of size 4 fails. With dim 0 on an axis of size 2 or 3, or dim 1 on the
    axis of size 4, it works.
    """

    template = (
        "dim {dim} of size {size} (shape {shape}) does not divide into the {ways} equal blocks of {sharding}"
    )
    hint = "shard a dim whose size is a multiple of {ways}, or use mesh axes whose sizes divide {size}"


class NoSuchAxis(ShardcError):
    """A sharding in the IR names an axis that the mesh lacks: ``rows`` on a mesh of data and tensor."""

    template = "a sharding names axis {axis!r}, but the mesh has {known}"
    hint = "name one of the mesh's axes, or add the axis to the dist.mesh"


class ReplicasDiffer(ShardcError):
    """Two ranks hold different values of the same block: their program is wrong or not deterministic."""

    template = (
        "ranks {first} and {second} must hold the same block of a value laid out as {sharding}, but differ "
        "in {count} of {size} elements, by up to {difference}"
    )
    hint = "look for an op that depends on the rank, or for a collective that is missing before this value"
    exit_code = 1
