"""Experts compute one chunk of rows while others are on their way: by the timeline of a plan."""

from __future__ import annotations

import pytest
from torch_mlir import ir

from shardc.cost.cluster.names import find_cluster
from shardc.cost.step.exposed import exposed_s
from shardc.cost.step.on_cluster import costs_on
from shardc.cost.step.spans import ItemSpan, RankSpans, spans_of_step
from shardc.dialects.context import new_context
from shardc.passes.experts.dist_dispatch import DistDispatch
from shardc.passes.manager.pass_pipelines import build, run
from shardc.report.step.read_step import read_step

WAYS, ROWS, WIDTH, INNER = 8, 65536, 4096, 14336
LATER = "torch-split-reductions,dist-propagate,dist-insert-reshards,partition"


def _text() -> str:
    """An expert on each device: two products, and an activation between them."""

    def cut(role: str, rank: int) -> str:
        dims = ", ".join(['["expert"]', *["[]"] * (rank - 1)])
        return f'{{dist.role = "{role}", dist.sharding = #dist.sharding<@mesh, [{dims}], []>}}'

    def tensor(*shape: int, dtype: str = "bf16") -> str:
        return f"!torch.vtensor<[{','.join(map(str, shape))}],{dtype}>"

    def product(x: str, w: str, types: str) -> str:
        return f'torch.operator "torch.shardc.expert_mm"({x}, {w}, %ids, %one, %share) : {types}'

    rows, inner, ids = tensor(ROWS, WIDTH), tensor(ROWS, INNER), tensor(ROWS, dtype="si64")
    up, down = tensor(WAYS, WIDTH, INNER), tensor(WAYS, INNER, WIDTH)
    own = "!torch.int, !torch.float"
    return f"""
    "dist.mesh"() {{sym_name = "mesh", axes = [["expert", {WAYS}, "space"]]}} : () -> ()
    func.func @step(%x: {rows} {cut("input", 2)}, %up: {up} {cut("param", 3)},
        %down: {down} {cut("param", 3)}, %ids: {ids} {cut("input", 1)}) -> ({rows} {cut("output", 2)}) {{
      %one = torch.constant.int 1
      %share = torch.constant.float {1 / WAYS:e}
      %0 = {product("%x", "%up", f"({rows}, {up}, {ids}, {own}) -> {inner}")}
      %1 = torch.aten.relu %0 : {inner} -> {inner}
      %2 = {product("%1", "%down", f"({inner}, {down}, {ids}, {own}) -> {rows}")}
      return %2 : {rows}
    }}"""


def _spans(chunks: int) -> RankSpans:
    with new_context():
        module = ir.Module.parse(_text())
        run(module, [DistDispatch(1.25, chunks), *build(LATER)])
        (rank,) = spans_of_step(read_step(module), costs_on(find_cluster("h100"), {"expert": WAYS}))
    return rank


def _overlaps(one: ItemSpan, other: ItemSpan) -> bool:
    return one.start_s < other.end_s and other.start_s < one.end_s


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_all_exchanges_but_the_first_and_the_last_are_hidden(chunks: int) -> None:
    """There is nothing to compute before the first chunk has come, and after the last."""
    rank = _spans(chunks)
    products = [span for span in rank.items if span.item.kind == "matmul"]
    exchanges = [span for span in rank.items if span.stream][1:]
    hidden = [any(_overlaps(span, product) for product in products) for span in exchanges]
    assert hidden == [False, *[True] * (2 * chunks - 2), False]
    assert len(products) == 2 * chunks


def test_kernels_wait_less() -> None:
    waits = [sum(exposed_s(_spans(chunks))) for chunks in (1, 2, 4)]
    assert waits == sorted(waits, reverse=True) and waits[1] < 0.7 * waits[0], waits
