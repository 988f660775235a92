"""A graph's steps in an order of less memory."""

from __future__ import annotations

import sys

import pytest
import torch
from torch_mlir import ir

from shardc.backends.torch.emit_graph import emit_graph
from shardc.backends.torch.memory import postpone
from shardc.backends.torch.memory.dry_run import META, dry_run

KEPT = 16
SHAPES = {"primals_1": (64, 512), "primals_2": (64, 64), "tangents_1": (8, 64)} | {
    f"kept_{n}": (8, 64) for n in range(KEPT)
}


def graph(context: ir.Context, first: str) -> ir.Module:
    """A tied weight's gradient by the ops ``first``, a chain through what forward kept, the gradient's second
    part.
    """
    given = ", ".join(
        f'%{name}: !torch.vtensor<[{rows},{columns}],f32> {{dist.name = "{name}"}}'
        for name, (rows, columns) in SHAPES.items()
    )
    row, wide = "!torch.vtensor<[8,64],f32>", "!torch.vtensor<[8,512],f32>"
    chain = "\n".join(
        f"%c{n + 1} = torch.aten.mul.Tensor %c{n}, %kept_{n} : {row}, {row} -> {row}" for n in range(KEPT)
    )
    large, square = "!torch.vtensor<[64,512],f32>", "!torch.vtensor<[64,64],f32>"
    with context:
        return ir.Module.parse(f"""
            func.func @step({given}) -> {wide} {{
                %one = torch.constant.int 1
                {first.format(row=row, large=large, wide=wide)}
                %c0 = torch.aten.mm %tangents_1, %primals_2 : {row}, {square} -> {row}
                {chain}
                %second = torch.aten.mm %c{KEPT}, %primals_1 : {row}, {large} -> {wide}
                %both = torch.aten.add.Tensor %first, %second, %one : {wide}, {wide}, !torch.int -> {wide}
                return %both : {wide}
            }}""")


MATMUL = "%first = torch.aten.mm %tangents_1, %primals_1 : {row}, {large} -> {wide}"


def run(text: str) -> torch.Tensor:
    torch.manual_seed(0)
    names: dict[str, object] = {}
    exec(text, names)
    return names["graph"](None, [torch.randn(shape) for shape in SHAPES.values()])[0]  # type: ignore[operator]


def peak_bytes(text: str) -> int:
    caller = [torch.empty(SHAPES[name], device=META) for name in ("primals_1", "primals_2")]
    others = list(SHAPES.values())[2:]
    return dry_run(
        text, "graph", lambda: [None, [*caller, *(torch.empty(s, device=META) for s in others)]]
    ).size_bytes


def both(context: ir.Context, first: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The program in the order in which it is written, and in ours."""
    module = graph(context, first)
    ours = emit_graph(module, [0])
    monkeypatch.setattr(postpone, "MOVES", 0)
    return emit_graph(module, [0]), ours


def test_a_result_that_waits_is_made_when_it_is_read(
    context: ir.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, ours = both(context, MATMUL, monkeypatch)
    assert peak_bytes(ours) < peak_bytes(written)
    assert torch.equal(run(ours), run(written))


def test_draws_keep_their_order(context: ir.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's generator gives the first caller the first numbers."""
    draw = (
        "%none = torch.constant.none\n%first = torch.aten.bernoulli %m, %none : {wide}, !torch.none -> {wide}"
    )
    written, ours = both(context, MATMUL.replace("%first", "%m") + "\n" + draw, monkeypatch)
    assert "bernoulli" in written and ours == written


def test_what_saves_nothing_stays(context: ir.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the chain reads no more than the matrix product's result takes."""
    monkeypatch.setattr(sys.modules[__name__], "KEPT", 2)
    monkeypatch.setattr(sys.modules[__name__], "SHAPES", dict(list(SHAPES.items())[:5]))
    written, ours = both(context, MATMUL, monkeypatch)
    assert ours == written
