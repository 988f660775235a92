"""Distribution of whole tensors to all ranks of a pipeline, whose ranks hold different tensors."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


def first_holders(held: Sequence[bool]) -> list[int]:
    """Return, for each tensor, the first rank that holds it.

    All ranks must call it together. ``held``: which of the tensors this rank holds.
    """
    rank, count = dist.get_rank(), dist.get_world_size()
    found = torch.tensor([rank if own else count for own in held])
    dist.all_reduce(found, dist.ReduceOp.MIN)
    return found.tolist()


def sent_to_all(tensor: Tensor, source: int) -> Tensor:
    """Return the tensor of rank ``source``. Other ranks pass one with its shape, dtype and device."""
    is_source = dist.get_rank() == source
    found = tensor.detach().contiguous() if is_source else tensor.new_empty(tensor.shape)
    dist.broadcast(found.view(-1).view(torch.uint8), source)
    return found
