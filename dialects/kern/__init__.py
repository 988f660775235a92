"""The ``kern`` dialect. Importing it registers every op and attribute.

Builders are functions of the op's module: ``from shardc.dialects.kern.kernel import kernel``.
"""

# ruff: noqa: F401
from shardc.dialects.kern import (
    attention,
    attention_backward,
    config,
    extern,
    grouped_matmul,
    kernel,
    linear_cross_entropy,
    linear_cross_entropy_backward,
    scatter_add,
    yield_op,
)
from shardc.dialects.kern.dialect import Kern
