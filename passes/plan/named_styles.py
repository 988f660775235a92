"""Styles of the plans that ``transformers`` models ship, and the dim of a parameter that each splits.

The styles are those of ``transformers.distributed.tensor_parallel`` and ``expert_parallel`` of 5.23. Styles
that only name communication at a module's boundary (``all_reduce``, ``moe_tp_experts``) split nothing,
because shardc derives communication itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from shardc.diagnostics.styles import UnknownStyle
from shardc.diagnostics.text import did_you_mean

Place = Literal["columns", "rows", "experts", ""]
"""The dim that a style splits: the last but one, the last, the first, or none."""


@dataclass(frozen=True)
class NamedStyle:
    """The split of a style. ``packed``: the parameter is several weights in one, each of which is split."""

    place: Place = ""
    packed: bool = False

    def dim(self, rank: int) -> int | None:
        """Return the dim to split of a parameter with ``rank`` dims; None if it stays whole."""
        if self.place == "experts":
            return 0
        offset = {"columns": 2, "rows": 1}.get(self.place)
        return None if offset is None else rank - offset


NAMED_STYLES: dict[str, NamedStyle] = {
    "colwise": NamedStyle("columns"),
    "colwise_rep": NamedStyle("columns"),
    "colwise_gather_output": NamedStyle("columns"),
    "rowwise": NamedStyle("rows"),
    "rowwise_rep": NamedStyle("rows"),
    "rowwise_split_input": NamedStyle("rows"),
    "packed_colwise": NamedStyle("columns", packed=True),
    "packed_rowwise": NamedStyle("rows", packed=True),
    "embedding_rowwise": NamedStyle("columns"),
    "embedding_colwise": NamedStyle("rows"),
    "sequence_parallel": NamedStyle(),
    "replicated_with_grad_allreduce": NamedStyle(),
    "mla_kv_a_proj": NamedStyle(),
    "all_reduce": NamedStyle(),
    "moe_tp_experts": NamedStyle(),
    "moe_identity_expert": NamedStyle(),
    "local_params": NamedStyle(),
    "replicate": NamedStyle(),
    "grouped_gemm": NamedStyle("experts"),
    "ep_dispatch_experts": NamedStyle(),
}
EXPERT_STYLES = frozenset(("grouped_gemm", "ep_dispatch_experts"))
"""Styles of an ``ep_plan``."""


def named_style(pattern: str, style: str, where: str | None = None) -> NamedStyle:
    """Return the style of that name. Raises UnknownStyle, whose message says ``where`` the plan is."""
    if style not in NAMED_STYLES:
        known = ", ".join(NAMED_STYLES)
        nearest = did_you_mean(style, list(NAMED_STYLES))
        raise UnknownStyle(pattern=pattern, style=style, known=known, nearest=nearest, where=where)
    return NAMED_STYLES[style]


def name_pattern(pattern: str) -> re.Pattern[str]:
    """Return a regular expression for names such as ``layers.*.mlp``: a star is one part of a name."""
    return re.compile(r"(?:.*\.)?" + re.escape(pattern).replace(r"\*", r"[^.]+"))


def without_experts(plan: Mapping[str, str], experts: Mapping[str, str]) -> dict[str, str]:
    """Return a ``tp_plan`` without the entries that an ``ep_plan`` replaces, as in ``transformers``."""
    is_expert = re.compile(rf"(?:{'|'.join(map(re.escape, experts))})(?:\..+)?").fullmatch
    return {name: style for name, style in plan.items() if not (experts and is_expert(name))}
