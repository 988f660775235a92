"""Artefacts of ``TORCH_TRACE``, the structured log of PyTorch's compilers that ``tlparse`` shows."""

from __future__ import annotations

from collections.abc import Callable

from shardc.runtime.torch_private import optional

PLAN = "shardc_plan"
"""Name of the artefact. ``tlparse`` writes it as ``shardc_plan_<number>.txt``."""


def log_artefact(name: str, text: Callable[[], str]) -> None:
    """Add a text to the log. ``text`` is called only with ``TORCH_TRACE``, and a PyTorch that supports it."""
    trace_structured = optional("trace_structured")
    if trace_structured is not None:
        about = {"name": name, "encoding": "string"}
        trace_structured("artifact", lambda: about, payload_fn=text, expect_trace_id=False)
