"""What a user may choose of fusion, by name; read without MLIR."""

from __future__ import annotations

NUMERICS = ("fused", "eager")
"""Where 16-bit floats are rounded: at a kernel's results, or after each op."""

MATMULS = ("extern", "generated")
"""Whether matrix products stay calls, or go into kernels with what is around them."""

STEP_MATMULS = ("auto", *MATMULS)
"""Of a compiled step: ``auto`` decides for each piece of it, by measurement, or by a model for a GPU that is
not here."""
