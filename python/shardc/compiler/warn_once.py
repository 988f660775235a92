"""Warnings about features that a program runs without, such as kernels, once for each cause."""

from __future__ import annotations

import logging

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.dynamo import KernelNotCompiled, ShardcFallbackWarning
from shardc.runtime.errors import RuntimeFailure
from shardc.runtime.report.messages import warn

log = logging.getLogger(__name__)

warned: set[str] = set()
"""The causes that were already reported."""


def warn_once(error: ShardcError | RuntimeFailure, cause: str = "") -> None:
    """Issue a ShardcFallbackWarning unless one had the same ``cause``, which defaults to the message."""
    message = str(error)
    if (cause or message) not in warned:
        warned.add(cause or message)
        warn(type(error).__name__, message, ShardcFallbackWarning, 2)


def warn_not_compiled(ops: str, error: Exception, where: str | None = None) -> None:
    """Warn that a kernel of ``ops`` could not be compiled; later ones with the same cause are only logged."""
    log.debug("kernels could not be compiled: %s", ops, exc_info=error)
    warn_once(KernelNotCompiled(ops=ops, error=cause_of(error), where=where), cause_of(error))


def cause_of(error: Exception) -> str:
    """Return the type of an error and the first line of its text."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
