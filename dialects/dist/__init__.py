"""The ``dist`` dialect. Importing it registers every op and attribute.

Builders are functions of the op's module: ``from shardc.dialects.dist.collectives.all_gather import
all_gather``.
"""

from shardc.dialects.dist.axis import Axis, AxisAttr
from shardc.dialects.dist.check import check_axes, check_sharding
from shardc.dialects.dist.collectives.all_gather import AllGatherOp
from shardc.dialects.dist.collectives.all_reduce import AllReduceOp
from shardc.dialects.dist.collectives.all_to_all import AllToAllOp
from shardc.dialects.dist.collectives.broadcast import BroadcastOp
from shardc.dialects.dist.collectives.permute import PermuteOp
from shardc.dialects.dist.collectives.reduce_scatter import ReduceScatterOp
from shardc.dialects.dist.constraint import ConstraintOp
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.mesh import Mesh, MeshAxis, MeshOp
from shardc.dialects.dist.offset import OffsetOp
from shardc.dialects.dist.partial import PartialOp
from shardc.dialects.dist.regions.loop import LoopOp
from shardc.dialects.dist.regions.manual import ManualOp
from shardc.dialects.dist.regions.yield_op import YieldOp
from shardc.dialects.dist.reshard import ReshardOp
from shardc.dialects.dist.sharding import Sharding, ShardingAttr, ShardingCodec
from shardc.dialects.dist.slice import SliceOp

__all__ = [
    "AllGatherOp",
    "AllReduceOp",
    "AllToAllOp",
    "Axis",
    "AxisAttr",
    "BroadcastOp",
    "ConstraintOp",
    "Dist",
    "LoopOp",
    "ManualOp",
    "Mesh",
    "MeshAxis",
    "MeshOp",
    "OffsetOp",
    "PartialOp",
    "PermuteOp",
    "ReduceScatterOp",
    "ReshardOp",
    "Sharding",
    "ShardingAttr",
    "ShardingCodec",
    "SliceOp",
    "YieldOp",
    "check_axes",
    "check_sharding",
]
