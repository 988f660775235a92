"""A search counts about what a compiled plan takes for activations that ranks keep on other ranks."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.names import find_cluster
from shardc.cost.pipeline import StageCost
from shardc.cost.schedule_form import FORMS, ScheduleForm
from shardc.passes.search.choose import Found, Unfit, least_kept
from shardc.planning.auto.pipelines.evictions import Evictions, waiting_s
from shardc.planning.auto.space import Choice
from shardc.planning.candidates import PIPE
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question
from shardc.planning.what_if import read_what_if

WIDTH, ROWS, RANKS, MICRO_BATCHES = 4096, 131072, 4, 16
PLAIN, *_ = FORMS
BALANCED = [form for form in FORMS if form.balances and form.per_rank <= 2]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


@cache
def pricer(links: str) -> tuple[Pricer, Cluster]:
    """Eight equal layers on four devices, one in a node, joined by links that are so much faster."""
    cluster = read_what_if(f"links={links}").cluster(find_cluster("h100-4x1"))
    with torch.device("meta"):
        model = nn.Sequential(*(Block() for _ in range(8))).to(torch.bfloat16)
        batch = torch.empty(ROWS, WIDTH, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    question = Question(
        "blocks", model, optimizer, (batch,), lambda out, _: out.float().square().mean(), ROWS
    )
    return Pricer(question, cluster=cluster), cluster


def choice(form: ScheduleForm) -> Choice:
    return Choice(RANKS, MICRO_BATCHES, ((PIPE, RANKS),), form=form)


def found(links: str, form: ScheduleForm) -> Found:
    answer = pricer(links)[0].found(choice(form).candidate)
    assert isinstance(answer, Found)
    return answer


@pytest.mark.parametrize("form", BALANCED, ids=str)
@pytest.mark.parametrize("links", ["0.05x", "0.2x"])
def test_the_estimate_is_about_the_price(links: str, form: ScheduleForm) -> None:
    made, cluster = pricer(links)
    answer = found(links, form)
    more_s, least_s = Evictions(cluster).seconds(choice(form).candidate, answer)
    price_s = made.price(choice(form).candidate).on(cluster).time.seconds
    assert more_s > 0.1 * answer.solution.seconds
    assert answer.solution.seconds + more_s == pytest.approx(price_s, rel=0.06)
    assert 0 < least_s < more_s
    assert answer.solution.bound_s + least_s < price_s


@pytest.mark.parametrize("form", BALANCED, ids=str)
def test_what_is_kept_is_what_stages_keep(form: ScheduleForm) -> None:
    kept = found("1x", form).kept
    stages = pricer("1x")[0].price(choice(form).candidate).step.stages
    assert kept is not None
    assert kept.size_bytes == pytest.approx(sum(stage.kept_bytes for stage in stages) / RANKS, rel=0.05)
    assert kept.least_bytes <= kept.size_bytes
    assert kept.forward_part == pytest.approx(1 / 3, abs=0.05)


def test_fast_links_add_nothing() -> None:
    for form in BALANCED:
        answer, candidate = found("1x", form), choice(form).candidate
        assert Evictions(pricer("1x")[1]).seconds(candidate, answer) == (0.0, 0.0)
        assert answer.kept is not None
        assert Evictions(pricer("1x")[1]).without(candidate, answer.kept, 2.0) == 2.0


def test_other_schedules_evict_nothing() -> None:
    assert found("0.05x", PLAIN).kept is None
    counted = Evictions(pricer("0.05x")[1]).seconds(choice(PLAIN).candidate, found("0.05x", PLAIN))
    assert counted == (0.0, 0.0)


@pytest.mark.parametrize("form", BALANCED, ids=str)
@pytest.mark.parametrize("cutoff_s", [0.8, 1.0, 2.0])
def test_a_search_ends_where_evictions_make_all_plans_too_slow(form: ScheduleForm, cutoff_s: float) -> None:
    """A plan that takes ``before_s`` or more takes at least ``cutoff_s`` with its evictions."""
    made, cluster = pricer("0.05x")
    candidate, evictions = choice(form).candidate, Evictions(cluster)
    kept = least_kept(made.graph(candidate))
    before_s = evictions.without(candidate, kept, cutoff_s)
    assert 0 < before_s < cutoff_s
    late = Unfit(0.0, 0.0, before_s, kept=kept)
    assert before_s + evictions.seconds(candidate, late)[1] >= cutoff_s
    early = replace(late, bound_s=before_s - cutoff_s / 16)
    assert early.bound_s + evictions.seconds(candidate, early)[1] < cutoff_s


@pytest.mark.parametrize("eviction_s", [1.5, 3.0, 6.0])
def test_many_ranks_wait_in_proportion(eviction_s: float) -> None:
    """64 ranks are counted as 32 twice, which wait twice as long as 16 with half as many micro-batches."""
    cost = StageCost(1.0, 2.0, 0.0, eviction_s=eviction_s)
    form = next(form for form in FORMS if form.balances)
    few, some, many = (waiting_s(form, ranks, 4 * ranks, cost) for ranks in (16, 32, 64))
    assert many == 2 * some
    assert some == pytest.approx(2 * few, rel=0.1)
    assert waiting_s(form, 16, 64, cost, overlap=False) > few
