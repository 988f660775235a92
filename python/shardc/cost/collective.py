"""Bytes that bandwidth-optimal collectives send (Thakur, Rabenseifner, Gropp 2005; Chan et al. 2007)."""

from __future__ import annotations

from typing import Annotated

from shardc.cost.origin import Published
from shardc.dialects.dist.reshard_steps import AllGather, AllReduce, AllToAll, Permute, ReduceScatter

BUCKET_BYTES: Annotated[int, Published("DistributedDataParallel (Li et al., VLDB 2020): 25 MiB")] = 25 << 20
"""Maximum size of several collectives packed into one."""
KINDS: dict[type, str] = {
    AllReduce: "all_reduce",
    AllGather: "all_gather",
    ReduceScatter: "reduce_scatter",
    AllToAll: "all_to_all",
    Permute: "permute",
}
"""Collective of each kind of reshard step. Other steps send nothing."""


def sent_bytes(kind: str, ways: int, local_bytes: float) -> float:
    """Return the bytes that one of ``ways`` devices sends in a collective on ``local_bytes`` each.

    Raises KeyError.
    """
    share = (ways - 1) / ways
    return {
        "all_reduce": 2 * share * local_bytes,
        "all_gather": (ways - 1) * local_bytes,
        "reduce_scatter": share * local_bytes,
        "all_to_all": share * local_bytes,
        "permute": local_bytes,
        "exchange": local_bytes,
        "broadcast": local_bytes,
    }[kind]
