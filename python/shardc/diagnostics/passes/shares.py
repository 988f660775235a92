"""Errors of unequal shares of a mesh axis."""

from __future__ import annotations

from shardc.diagnostics.base import ShardcError


class BadShares(ShardcError):
    """Shares of a mesh axis are invalid.

    Fails: ``mesh={"data": 2}, shares={"data": [3, 0]}``. Works: ``shares={"data": [3, 1]}``.
    """

    template = "shares {shares} of mesh axis {axis!r}: {problem}"
    hint = "{instead}"


class SharesUnsupported(ShardcError):
    """Unequal shares were given with an option that does not support them yet.

    Fails: ``shares={"data": [3, 1]}, per_micro_batch=True``. Works: either of them.
    """

    template = "unequal shares of mesh axis {axis!r} cannot be combined with {other}"
    hint = "{instead}"


class SharesOfNoBatch(ShardcError):
    """An axis has shares, but the plan shards no batch along it.

    Fails: ``plan="tensor", shares={"tensor": [3, 1]}``. Works: ``plan="data", shares={"data": [3, 1]}``.
    """

    template = "mesh axis {axis!r} has unequal shares, but the plan {plan!r} shards no batch along it"
    hint = "give shares to an axis that shards the batch: that of data, zero1, zero2, zero3 or their products"


class ShareBesideOther(ShardcError):
    """An axis with shares shards an input otherwise than by dim 0 alone.

    Fails: ``plan="data:x*data:y"`` with shares of ``x``. Works: one axis for the batch.
    """

    template = (
        "mesh axis {axis!r} with unequal shares must shard dim 0 of an input and nothing else, but "
        "{name!r} is also sharded along {others}"
    )
    hint = "let one axis shard the batch, and give the shares of all its devices"


class ShareWithoutRows(ShardcError):
    """A batch has so few rows that a device's share is empty.

    Fails: a batch of 5 with ``shares={"data": [7, 1]}``. Works: a batch of 8, or shares 4:1.
    """

    template = "{name!r} has {rows} rows: with shares {shares} along {axis!r} a device gets none"
    hint = "use shares {nearest}, or a batch whose rows are a multiple of the shares' sum"
