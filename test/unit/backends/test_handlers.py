"""Structured ops of ``kern``: the oracle runs each, and targets have code for those that they fuse."""

from __future__ import annotations

from shardc.backends.body.handlers import handlers
from shardc.backends.cpu import compile as cpu
from shardc.backends.eager.kern import linalg
from shardc.backends.triton.emit import emit as triton
from shardc.dialects.kern import Kern
from shardc.dialects.kern.body import NOT_INSIDE

STRUCTURED = {op.OPERATION_NAME for op in Kern.operations} - NOT_INSIDE


def test_the_oracle_runs_all() -> None:
    assert set(handlers(linalg.__package__)) == STRUCTURED


def test_gpus_have_what_no_capability_names() -> None:
    assert set(handlers(*triton.WRITERS)) == STRUCTURED - {"kern.convolution", "kern.scan"}


def test_cpus_have_what_no_capability_names() -> None:
    found = set(handlers(*cpu.WRITERS))
    assert {"kern.attention", "kern.attention_backward", "kern.scatter_add"} <= found <= STRUCTURED
