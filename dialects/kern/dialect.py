"""The ``kern`` dialect: groups of ops as kernels, and how they are tiled."""

from torch_mlir.dialects import ext

import shardc.dialects.dist.dialect  # noqa: F401  (tells the bindings where our dialects' modules are)


class Kern(ext.Dialect, name="kern"):
    """Level 4: what runs as one generated kernel."""
