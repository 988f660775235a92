"""The ``dist`` dialect. Importing it registers every op and attribute.

Builders are functions of the op's module: ``from shardc.dialects.dist.collectives.all_gather import
all_gather``.
"""

# ruff: noqa: F401
from shardc.dialects.dist import axis, constraint, mesh, offset, partial, reshard, sharding, slice
from shardc.dialects.dist.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    exchange,
    permute,
    reduce_scatter,
)
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.regions import loop, manual, yield_op
