"""Batch norm with ``momentum=None``, whose running statistics average all batches so far.

PyTorch reads the number of batches as a Python number; here it stays a tensor of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d

from shardc.runtime.torch_private import check_input_dim

_KINDS = (BatchNorm1d, BatchNorm2d, BatchNorm3d)
_Norm = BatchNorm1d | BatchNorm2d | BatchNorm3d


def average_batches(model: torch.nn.Module) -> None:
    """Replace the forward of such modules, until their attributes are restored."""
    for module in model.modules():
        if type(module) in _KINDS and isinstance(module, _KINDS) and module.momentum is None:
            vars(module)["forward"] = partial(_forward, module, module.forward)


def _forward(module: _Norm, original: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    mean, var, count = module.running_mean, module.running_var, module.num_batches_tracked
    if not module.training or mean is None or var is None or count is None:
        return original(x)
    check_input_dim(module, x)
    # With momentum 1 the running statistics become those of this batch alone.
    own_mean, own_var = torch.zeros_like(mean), torch.ones_like(var)
    normalized = F.batch_norm(x, own_mean, own_var, module.weight, module.bias, True, 1.0, module.eps)
    count.add_(1)
    for running, own in ((mean, own_mean), (var, own_var)):
        running.add_((own - running) / count)
    return normalized
