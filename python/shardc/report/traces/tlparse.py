"""Artefacts of ``TORCH_TRACE``, the structured log of PyTorch's compilers that ``tlparse`` shows."""

from __future__ import annotations

from collections.abc import Callable

from shardc.runtime.torch_private import optional

PLAN = "shardc_plan"
"""The artefact's name, and the page's: ``shardc_plan_<number>.txt``."""


def log_artefact(name: str, text: Callable[[], str]) -> None:
    """Add a text to the log; without ``TORCH_TRACE``, or a PyTorch that has such a log, nothing is made."""
    trace_structured = optional("trace_structured")
    if trace_structured is not None:
        about = {"name": name, "encoding": "string"}
        trace_structured("artifact", lambda: about, payload_fn=text, expect_trace_id=False)
