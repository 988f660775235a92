"""Which ops communicate: they start where they stand, and are waited for where their result is
first needed.
"""

COLLECTIVES = frozenset(
    f"dist.{name}"
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "broadcast")
)
