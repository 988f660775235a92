"""MLIR context of shardc: the torch dialect, and the dialects ``dist``, ``kern`` and ``pipe``."""

from torch_mlir import ir
from torch_mlir.dialects import torch as torch_dialect


def new_context() -> ir.Context:
    """Return a fresh context with the ``torch``, ``dist``, ``kern`` and ``pipe`` dialects loaded."""
    from shardc.dialects.dist import Dist
    from shardc.dialects.kern import Kern
    from shardc.dialects.pipe import load

    context = ir.Context()
    torch_dialect.register_dialect(context)
    with context, ir.Location.unknown():
        Dist.load()
        Kern.load()
        load().load()
    return context
