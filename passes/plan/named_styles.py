"""The styles of plans that ``transformers`` models ship: what each does to a parameter.

``transformers.distributed.tensor_parallel`` and ``expert_parallel`` of 5.23. Styles that only say what is
sent at a module's border (``all_reduce``, ``moe_tp_experts``) cut nothing: shardc finds what to send itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from shardc.diagnostics.styles import UnknownStyle
from shardc.diagnostics.text import did_you_mean

Place = Literal["columns", "rows", "experts", ""]
"""The dim that a style cuts: the last but one, the last, the first, or none."""


@dataclass(frozen=True)
class NamedStyle:
    """What a style cuts. ``packed``: several weights in one, each of which is cut."""

    place: Place = ""
    packed: bool = False

    def dim(self, rank: int) -> int | None:
        """The dim of a parameter of ``rank`` dims; None: it stays whole."""
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
"""Those of an ``ep_plan``."""


def named_style(pattern: str, style: str, where: str | None = None) -> NamedStyle:
    """The style of that name. Raises UnknownStyle, which gives ``where`` the plan is."""
    if style not in NAMED_STYLES:
        known = ", ".join(NAMED_STYLES)
        nearest = did_you_mean(style, list(NAMED_STYLES))
        raise UnknownStyle(pattern=pattern, style=style, known=known, nearest=nearest, where=where)
    return NAMED_STYLES[style]


def name_pattern(pattern: str) -> re.Pattern[str]:
    """What names ``layers.*.mlp`` means: each star is one part of a name, in any module."""
    return re.compile(r"(?:.*\.)?" + re.escape(pattern).replace(r"\*", r"[^.]+"))


def without_experts(plan: Mapping[str, str], experts: Mapping[str, str]) -> dict[str, str]:
    """A ``tp_plan`` without what an ``ep_plan`` says, as ``transformers`` joins the two."""
    is_expert = re.compile(rf"(?:{'|'.join(map(re.escape, experts))})(?:\..+)?").fullmatch
    return {name: style for name, style in plan.items() if not (experts and is_expert(name))}
