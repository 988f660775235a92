"""What torch and libraries must believe during a trace: that they are compiled, and where they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.backends import mkldnn

from shardc.runtime.torch_private import compile_session, distributions_unchecked


@contextmanager
def compiling() -> Iterator[None]:
    """Says for the length of a trace that torch compiles, hides the CPU's own library of kernels, and stops
    distributions from reading their parameters.

    Without the first ``transformers`` reads mask values, and ``capturable`` optimizers refuse CPU tensors.
    With the library an LSTM is traced as one op that only CPUs have, in f32 alone.
    """
    # mkldnn.flags sets more and warns of it
    enabled, *_ = mkldnn.set_flags(_enabled=False, _fp32_precision=None)
    try:
        with compile_session(), distributions_unchecked():
            yield
    finally:
        mkldnn.set_flags(_enabled=enabled, _fp32_precision=None)
