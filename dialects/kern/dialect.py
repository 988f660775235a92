"""The ``kern`` dialect: kernels, which stand for groups of ops, and their tile sizes."""

from torch_mlir.dialects import ext

import shardc.dialects.dist.dialect  # noqa: F401  (tells the bindings where our dialects' modules are)


class Kern(ext.Dialect, name="kern"):
    """Level 4: groups of ops that run as generated kernels, and calls of libraries."""
