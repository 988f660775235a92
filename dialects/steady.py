"""Attribute of functions in a kernel's body whose results must have the same bits in all kernels.

Their results are compared with extrema of themselves that another kernel has found.
"""

STEADY = "kern.steady"
