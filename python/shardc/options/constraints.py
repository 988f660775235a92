"""Parser of the option ``constraints`` on the command line: layouts of modules' outputs."""

from __future__ import annotations


def parse_constraints(text: str) -> dict[str, object]:
    """Parse ``model.layers.*.mlp=data,-,tensor; lm_head=whole`` into the form that Python takes.

    The result is ``{"model.layers.*.mlp": ["data", None, "tensor"], "lm_head": "whole"}``. Several axes of
    one dim are joined, as in ``data+tensor``.
    """
    pairs = (part.partition("=") for part in text.split(";") if part.strip())
    return {name.strip(): _layout(layout.strip()) for name, _, layout in pairs}


def _layout(text: str) -> object:
    if text in ("", "whole"):
        return text
    return [_entry(entry.strip()) for entry in text.split(",")]


def _entry(text: str) -> object:
    if text in ("", "-", "None"):
        return None
    return text.split("+") if "+" in text else text
