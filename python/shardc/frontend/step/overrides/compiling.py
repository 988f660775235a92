"""Global state for a trace, which makes torch and libraries behave as under a compiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.backends import mkldnn

from shardc.runtime.torch_private import compile_session, distributions_unchecked, non_strict_tracing


@contextmanager
def compiling() -> Iterator[None]:
    """Signal a compilation to torch, disable mkldnn, and turn off checks of distributions.

    Without the compile session ``transformers`` reads mask values, and ``capturable`` optimizers refuse CPU
    tensors. Without non-strict tracing, selective checkpointing saves everything for a compiler to choose
    from. With mkldnn, an LSTM would be traced as one op that only CPUs have, in f32 alone.
    """
    # mkldnn.flags would set more, and warn about it
    flags: dict[str, Any] = {"_fp32_precision": None}  # None is missing from mkldnn's own type
    enabled, *_ = mkldnn.set_flags(_enabled=False, **flags)
    try:
        with compile_session(), non_strict_tracing(), distributions_unchecked():
            yield
    finally:
        mkldnn.set_flags(_enabled=enabled, **flags)
