"""What torch and libraries must believe during a trace: that they are compiled, and where they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.backends import mkldnn

from shardc.runtime.torch_private import compile_session, distributions_unchecked, non_strict_tracing


@contextmanager
def compiling() -> Iterator[None]:
    """Says that torch compiles, hides the CPU's library of kernels, and leaves distributions unchecked.

    Without the session ``transformers`` reads mask values, and ``capturable`` optimizers refuse CPU tensors.
    Without non-strict tracing, selective checkpointing keeps all, for a compiler to choose.
    With the library an LSTM is traced as one op that only CPUs have, in f32 alone.
    """
    # mkldnn.flags sets more and warns of it
    flags: dict[str, Any] = {"_fp32_precision": None}  # which the library's own type does not allow
    enabled, *_ = mkldnn.set_flags(_enabled=False, **flags)
    try:
        with compile_session(), non_strict_tracing(), distributions_unchecked():
            yield
    finally:
        mkldnn.set_flags(_enabled=enabled, **flags)
