"""How outputs of modules lie, as the command line writes it."""

from __future__ import annotations


def parse_constraints(text: str) -> dict[str, object]:
    """``model.layers.*.mlp=data,-,tensor; lm_head=whole`` as ``{"model.layers.*.mlp": ["data", None,
    "tensor"], "lm_head": "whole"}``; a dim of several axes is ``data+tensor``.
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
