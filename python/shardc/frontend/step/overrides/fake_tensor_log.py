"""PyTorch's log of failed fake calls: a traceback for an error that is raised, too."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_LOG = logging.getLogger("torch._subclasses.fake_tensor")


@contextmanager
def failures_unlogged() -> Iterator[None]:
    """Context in which a failed call of fake tensors is only raised, not logged as well."""
    before, _LOG.disabled = _LOG.disabled, True
    try:
        yield
    finally:
        _LOG.disabled = before
