"""Compilation in forked children, so that a process whose graphs were compiled has no memory for that.

MLIR, the bodies of kernels and what benchmarks read take 100 to 250 MB, which would stay with the process.
A child has the graph because it is a copy of this process, and its results are entries of the cache on disk.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable

import torch

from shardc.runtime.report.messages import ShardcWarning
from shardc.workers.forked import Forked, can_fork
from shardc.workers.process import Ended

log = logging.getLogger(__name__)

MOST = 5
"""Number of children that a process starts. Each of them loads MLIR (0.7 s), which many graphs would repeat.
"""

_started = 0


def is_of_use() -> bool:
    """Return whether a child would save memory: this process has not loaded MLIR, and forks."""
    return can_fork() and "torch_mlir" not in sys.modules and _started < MOST


def has_done(work: Callable[[], object]) -> bool:
    """Run ``work`` in a child, which keeps its results on disk. Return whether it ended as it should.

    If it raised an error or issued a warning of shardc, or the child crashed or hung, then the caller must do
    the work, and gets the error or the warning. After that, this process starts no other child.
    """
    global _started
    is_done = _answer(work)
    _started = _started + 1 if is_done else MOST
    return is_done


def _answer(work: Callable[[], object]) -> bool:
    try:
        child = Forked(lambda: _is_silent(work), torch.get_num_threads())
    except OSError as error:  # the system has no memory or process left
        log.debug("no child was forked: %s", error)
        return False
    try:
        return child.result(lambda: False)
    except Ended as error:
        log.debug("a child did not compile: %s", error)
        return False
    except BaseException:  # after an interrupt, nobody waits for its answer
        child.end()
        raise


def _is_silent(work: Callable[[], object]) -> bool:
    global _started
    _started = MOST  # a child works alone
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        work()
    return not any(issubclass(warning.category, ShardcWarning) for warning in issued)
