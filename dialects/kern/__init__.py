"""The ``kern`` dialect. Importing it registers every op and attribute.

Builders are functions of the op's module: ``from shardc.dialects.kern.kernel import kernel``.
"""

from shardc.dialects.kern.attention import AttentionOp
from shardc.dialects.kern.attention_backward import AttentionBackwardOp
from shardc.dialects.kern.config import ConfigAttr
from shardc.dialects.kern.dialect import Kern
from shardc.dialects.kern.extern import ExternOp
from shardc.dialects.kern.grouped_matmul import GroupedMatmulOp
from shardc.dialects.kern.kernel import KernelOp
from shardc.dialects.kern.linear_cross_entropy import LinearCrossEntropyOp
from shardc.dialects.kern.linear_cross_entropy_backward import LinearCrossEntropyBackwardOp
from shardc.dialects.kern.scatter_add import ScatterAddOp
from shardc.dialects.kern.yield_op import YieldOp

__all__ = [
    "AttentionBackwardOp",
    "AttentionOp",
    "ConfigAttr",
    "ExternOp",
    "GroupedMatmulOp",
    "Kern",
    "KernelOp",
    "LinearCrossEntropyBackwardOp",
    "LinearCrossEntropyOp",
    "ScatterAddOp",
    "YieldOp",
]
