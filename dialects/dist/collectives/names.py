"""Names of the ops that communicate. They start in program order; the first use of a result waits for it."""

_NAMES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "exchange", "broadcast")
COLLECTIVES = frozenset(f"dist.{name}" for name in _NAMES)
ALL_GATHER = "dist.all_gather"
