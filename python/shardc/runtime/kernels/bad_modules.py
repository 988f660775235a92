"""Error for a folder of Triton kernels."""

from ..errors import RuntimeFailure


class BadModules(RuntimeFailure):
    """A folder of Triton kernels lacks a kernel, or has a file of another form than the program needs."""
