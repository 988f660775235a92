"""The ops that communicate: they start in program order and are waited for at their first use."""

_NAMES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "exchange", "broadcast")
COLLECTIVES = frozenset(f"dist.{name}" for name in _NAMES)
