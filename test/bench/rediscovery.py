"""What ``plan="auto"`` finds from model and cluster alone, beside the plan that people publish or use.

    python test/bench/rediscovery.py [--case NAME ...] [--limit SECONDS]

Both plans are priced by one cost model, that of ``shardc plan``. Printed are also the shardings that the
search chose for the largest products, and which part of parameters and optimizer state each axis splits. A
known plan that needs more memory than a device has is printed with what it needs; a variant of it that needs
less follows.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from machine import heading, table
from searched_models import META, SUBJECTS, Subject
from torch import Tensor, nn

from shardc.cost.cluster.names import find_cluster
from shardc.diagnostics.base import ShardcError
from shardc.options.recompute import Policy
from shardc.passes.search.choose import Found
from shardc.planning.auto.searches import Searches
from shardc.planning.candidates import Candidate
from shardc.planning.price import Price
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question, tokens_of
from shardc.planning.verdict import time_text


class Tables(nn.Module):
    """Recommendation model: large embedding tables, and small dense layers on their rows."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.dense = nn.Sequential(
            nn.Linear(tables * width, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)
        )

    def forward(self, ids: Tensor) -> Tensor:
        found = [table(ids[:, number]) for number, table in enumerate(self.tables)]
        return self.dense(torch.cat(found, dim=1)).float().square().mean()


def clicks(batch: int, tables: int) -> Callable[[], object]:
    return lambda: (torch.empty(batch, tables, dtype=torch.int64, device=META),)


@dataclass(frozen=True)
class Known:
    """A known plan. ``options``: other options of ``compile_step``."""

    candidate: Candidate
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return ", ".join([self.candidate.text, *(f"{name} {value}" for name, value in self.options.items())])


@dataclass(frozen=True)
class Case:
    """A subject, and the plans that are known for it with their source.

    Where a published plan needs more memory in shardc than a device has, a variant that needs less is beside
    it. Experts have room for all tokens without ``expert_capacity``; with it, a step may stop.
    """

    subject: Subject
    known: Sequence[Known]
    source: str


def _known(
    mesh: Mapping[str, int], plan: str, parts: int, *policies: Policy, **options: object
) -> list[Known]:
    return [Known(Candidate(mesh, plan, parts, policy), options) for policy in policies]


_GPT = {"pipe": 2, "data": 4, "tensor": 8}
_MIXTRAL = {"pipe": 8, "data": 2, "expert": 8}
_LLAMA = {"pipe": 16, "data": 128, "tensor": 8}
_DEEPSEEK = {"pipe": 16, "expert": 64}
CASES: Mapping[str, Case] = {
    "Megatron's split in a node": Case(
        SUBJECTS["GPT-39B, 64"],
        _known(_GPT, "pipeline*zero1*sequence", 16, "selective"),
        "Narayanan et al. 2021, Korthikanti et al. 2022",
    ),
    "ZeRO over data": Case(
        SUBJECTS["Llama-3-8B, 64"], _known({"data": 64}, "zero3", 1, "none"), "Rajbhandari et al. 2020"
    ),
    "experts within nodes": Case(
        SUBJECTS["Mixtral-8x22B, 128"],
        [
            *_known(_MIXTRAL, "pipeline*zero1*expert", 16, "none"),
            *_known(_MIXTRAL, "pipeline*zero1*expert", 16, "none", "selective", expert_capacity=1.25),
        ],
        "Megatron-Core: PP 8, EP 8",
    ),
    "row-sharded tables": Case(
        Subject(lambda: Tables(16, 40_000_000, 64), clicks(65536, 16), "h100-8"),
        _known({"data": 8}, "zero3", 1, "none"),
        "Naumov et al. 2019: tables apart, dense layers by data",
    ),
    "Llama-3-405B": Case(
        SUBJECTS["Llama-3-405B, 16,384"],
        _known(_LLAMA, "pipeline*zero1*sequence", 16, "none", "selective"),
        "Llama team 2024: TP 8, PP 16, DP 128, nothing recomputed",
    ),
    "DeepSeek-V3": Case(
        SUBJECTS["DeepSeek-V3, 1,024"],
        _known(_DEEPSEEK, "pipeline*expert", 32, "full", expert_capacity=1.25),
        "DeepSeek 2024: PP 16, EP 64, ZeRO-1",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--limit", type=float, help="seconds of the search")
    given = parser.parse_args()
    print(heading("Searched plans beside published ones"))
    for name in given.case or CASES:
        _print(name, CASES[name], given.limit)


def _print(name: str, case: Case, limit_s: float | None) -> None:
    with META:
        model = case.subject.model().to(torch.bfloat16).train()
    batch, cluster = case.subject.batch(), find_cluster(case.subject.cluster)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    question = Question(name, model, optimizer, batch, case.subject.loss, tokens_of(batch))
    pricer = Pricer(question, cluster=cluster)
    searches = Searches(pricer, cluster, search_seconds=limit_s)
    print(f"\n{name} ({case.source}), {cluster.name}")
    rows: list[tuple[str, ...]] = []
    try:
        picked = searches.best()
        rows.append(("searched", *_row(picked.priced.on(cluster))))
        print(f"gap {picked.around.gap:.1%}, {picked.around.looked_at} of {picked.around.choices} looked at")
    except ShardcError as error:
        print(f"no plan was found: {next(iter(str(error).splitlines()))}")
        picked = None
    for known in case.known:
        try:
            _, *costs = _row(pricer.price(known.candidate, **known.options).on(cluster))
        except ShardcError as error:
            costs = [next(iter(str(error).splitlines())), ""]
        rows.append(("known", known.text, *costs))
    print(table(("", "plan", "a step", "memory"), rows))
    if picked is not None:
        for line in _chosen(pricer, picked.priced.candidate):
            print(f"  {line}")


def _row(price: Price) -> tuple[str, str, str]:
    needed = f"{price.needed_bytes / 1e9:.1f} of {price.capacity_bytes / 1e9:.1f} GB"
    return price.priced.candidate.text, time_text(price.time.seconds), needed


def _chosen(pricer: Pricer, candidate: Candidate) -> list[str]:
    """Return how the products are sharded over each axis, and which part of the state each axis splits."""
    found = pricer.found(candidate, explain="runners-up")
    if not isinstance(found, Found) or found.answer is None:
        return []
    step = pricer.graph(candidate)
    lines = [f"{row.calls} x {row.module}: {row.now}" for row in found.answer.runners_up]
    for role in ("param", "opt_state"):
        split, total = Counter[str](), 0
        for position, layout in enumerate(found.chosen.arguments):
            if step.program.argument_key(position)[0] != role:
                continue
            size_bytes = step.program.types[step.program.arguments[position]].size_bytes
            total += size_bytes
            for number in step.axes.space:
                if layout[number] >= 0:
                    split[f"{step.axes.axes[number].name} (dim {layout[number]})"] += size_bytes
        parts = ", ".join(f"{axis} {part / total:.0%}" for axis, part in split.items() if total)
        lines.append(f"{role} in the program split over: {parts or 'nothing'}")
    return lines


if __name__ == "__main__":
    main()
