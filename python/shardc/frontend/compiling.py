"""What torch and libraries must believe during a trace: that they are compiled, and where they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributions import Distribution
from torch.utils import checkpoint


@contextmanager
def compiling() -> Iterator[None]:
    """Sets torch's private flag for the length of a trace, hides the CPU's own library of kernels, and stops
    distributions from reading their parameters.

    Without the flag ``transformers`` reads mask values, and ``capturable`` optimizers refuse CPU tensors. With the
    library an LSTM is traced as one op that only CPUs have, in f32 alone.
    """
    saved = torch.compiler._is_compiling_flag, torch._C._get_mkldnn_enabled(), Distribution._validate_args
    torch.compiler._is_compiling_flag = True
    # torch.backends.mkldnn.flags sets more and warns of it.
    torch._C._set_mkldnn_enabled(False)
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = saved[0]
        torch._C._set_mkldnn_enabled(saved[1])
        Distribution.set_default_validate_args(saved[2])


@contextmanager
def recomputation_unchecked() -> Iterator[None]:
    """Lets activation checkpointing take what it has run again for the same:
    symbolic sizes of two runs have two names.
    """
    checks = checkpoint._allowed_determinism_checks_to_fns
    saved = dict(checks)
    checks["default"] = checks["none"]
    try:
        yield
    finally:
        checks.update(saved)


@contextmanager
def autocast_for_all() -> Iterator[None]:
    """Makes ``torch.autocast("cuda")`` in a model act on the CPU tensors that it is traced with.

    Else it would be ignored without a word, and the program would compute in another precision than the
    model.
    """
    original = torch.autocast.__init__

    def init(
        self: torch.autocast, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kw: Any
    ) -> None:
        dtype = dtype or torch.get_autocast_dtype(device_type)
        original(self, "cpu", dtype, *args, **kw)

    torch.autocast.__init__ = init
    try:
        yield
    finally:
        torch.autocast.__init__ = original
