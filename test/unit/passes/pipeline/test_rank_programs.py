"""Programs of a pipeline's ranks that do not do what the schedule says are refused: at level 3, as the oracle
runs them, and as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_mlir import ir

from shardc.backends.eager.pipeline import read_pipeline, run_pipeline
from shardc.backends.torch.check_program import check_program
from shardc.backends.torch.emit import emit_program
from shardc.commands.check import check_artefact
from shardc.diagnostics.dialects.levels import RankProgramBroken
from shardc.diagnostics.oracle import WrongMessage
from shardc.passes.manager.program import copy_module
from shardc.passes.pipeline.checks.check_rank_programs import check_rank_programs
from shardc.runtime.check import MANIFEST, sha256
from shardc.step.compile_step import CompiledStep, compile_step
from shardc.step.values import example_inputs

Ranks = tuple[dict[str, ir.Operation], dict[str, ir.Operation]]
"""The ops of both ranks by what they are: ``send 1F0``, ``receive 1F0``, ``0F0``."""


@cache
def pipeline(schedule: str = "1f1b") -> CompiledStep:
    """Four equal layers on two ranks, 4 micro-batches."""
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.Tanh())))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 4, "fuse": False}
    loss = lambda output, batch: output.square().mean()  # noqa: E731
    batch = (torch.randn(8, 8),)
    return compile_step(model, optimizer, batch, loss=loss, schedule=schedule, **options)  # type: ignore[arg-type]


def ranks_of(module: ir.Module) -> Ranks:
    program = read_pipeline(module)
    assert program is not None
    found: list[dict[str, ir.Operation]] = []
    for function in program.functions:
        mine: dict[str, ir.Operation] = {}
        for op in (o.operation for o in function.regions[0].blocks[0].operations):
            if op.name in ("pipe.send", "pipe.receive"):
                mine[f"{op.name[5:]} {op.attributes['tag'].value}"] = op
            elif op.name == "pipe.action":
                mine[op.attributes["action"].value] = op
        found.append(mine)
    return found[0], found[1]


def swap(one: ir.Operation, other: ir.Operation, attribute: str) -> None:
    first, second = one.attributes[attribute], other.attributes[attribute]
    one.attributes[attribute], other.attributes[attribute] = second, first


def element(op: ir.Operation, number: int) -> ir.Operation:
    """What constructs the tuple that ``op`` reads."""
    return op.operands[number].owner.operation


def swapped_sends(ranks: Ranks) -> None:
    ranks[0]["send 1F0"].move_after(ranks[0]["send 1F1"])


def swapped_receives(ranks: Ranks) -> None:
    """The first stands behind the second, with all that reads it behind both."""
    swap(ranks[1]["receive 1F0"], ranks[1]["receive 1F1"], "tag")


def swapped_tags(ranks: Ranks) -> None:
    """Both sides agree, and both are wrong."""
    for kind, mine in zip(("send", "receive"), ranks, strict=True):
        swap(mine[f"{kind} 1F0"], mine[f"{kind} 1F1"], "tag")


def crossed_messages(ranks: Ranks) -> None:
    """The send of 1F1 has the value for 1F0."""
    ranks[0]["send 1F1"].operands[0] = ranks[0]["send 1F0"].operands[0]


def lost_send(ranks: Ranks) -> None:
    ranks[0]["send 1F3"].erase()


def order_of_both_ways(ranks: Ranks) -> None:
    """Each direction has its order, but rank 1 sends before it receives what rank 0 sends first."""
    receive = ranks[1]["receive 1F1"]
    (unpack,) = [use.owner.operation for use in receive.results[0].uses]
    receive.move_after(ranks[1]["send 0B0"])
    unpack.move_after(receive)


def swapped_labels(ranks: Ranks) -> None:
    swap(ranks[1]["1F0"], ranks[1]["1F1"], "action")


def swapped_labels_of_backward(ranks: Ranks) -> None:
    swap(ranks[0]["0B2"], ranks[0]["0B3"], "action")


def crossed_activations(ranks: Ranks) -> None:
    """Backward of micro-batch 1 reads what forward of micro-batch 0 kept."""
    first, second = (element(ranks[0][name], 0) for name in ("0B0", "0B1"))
    second.operands[1] = first.operands[1]


WRONG: dict[Callable[[Ranks], None], str] = {
    swapped_sends: "the send of 1F1 .* is transfer 1 with rank 1, where that rank has the receive of 1F0",
    swapped_receives: "1F1 takes a value of 1F0, another micro-batch's|1F0 takes a value of 1F1",
    swapped_tags: "the send of 1F1 takes a value of 0F0, another micro-batch's",
    crossed_messages: "the send of 1F1 takes a value of 0F0, another micro-batch's",
    lost_send: "the receive of 0B2 .* is transfer|where that rank has the receive of 1F3",
    order_of_both_ways: "the send of 1F1 .* is transfer 2 with rank 1, where that rank has the send of 0B0",
    swapped_labels: "it runs 1F1 where the schedule has 1F0",
    swapped_labels_of_backward: "it runs 0B3 where the schedule has 0B2",
    crossed_activations: "0B1 takes a value of 0F0, another micro-batch's",
}


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "chimera"])
def test_what_is_compiled_passes(schedule: str) -> None:
    program = pipeline(schedule).compiled.program
    check_rank_programs(program)
    check_program(emit_program(program), program)


@pytest.mark.parametrize("edit", WRONG, ids=lambda edit: edit.__name__)
def test_a_wrong_program_of_level_3_is_refused(edit: Callable[[Ranks], None]) -> None:
    module = copy_module(pipeline().compiled.program)
    edit(ranks_of(module))
    assert module.operation.verify()  # which ops cannot see
    with pytest.raises(RankProgramBroken, match=WRONG[edit]):
        check_rank_programs(module)


def test_an_action_must_run_the_body_of_its_stage() -> None:
    """The body of another stage, which MLIR takes where its arguments and results have the same types."""
    module = copy_module(pipeline().compiled.program)
    ops = [o.operation for o in module.body.operations]
    forward = {op.attributes["sym_name"].value: op for op in ops if op.name == "pipe.stage"}
    swap(forward["stage_0_B"], forward["stage_1_B"], "sym_name")
    swap(forward["stage_0_B"], forward["stage_1_B"], "index")
    for mine in ranks_of(module):
        for op in mine.values():
            if op.name == "pipe.action" and op.attributes["stage"].value.endswith("B"):
                other = {"stage_0_B": "stage_1_B", "stage_1_B": "stage_0_B"}[op.attributes["stage"].value]
                op.attributes["stage"] = ir.FlatSymbolRefAttr.get(other, op.context)
    assert module.operation.verify()
    with pytest.raises(RankProgramBroken, match="0B0 runs stage_1_B, not stage_0_B"):
        check_rank_programs(module)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (swapped_sends, "rank 1 gets 1F1 of shapes .* from rank 0 where it expects 1F0"),
        (swapped_receives, "rank 1 gets 1F0 of shapes .* from rank 0 where it expects 1F1"),
    ],
)
def test_the_oracle_delivers_by_order(edit: Callable[[Ranks], None], message: str) -> None:
    step = pipeline()
    module = copy_module(step.compiled.program)
    edit(ranks_of(module))
    program = read_pipeline(module)
    assert program is not None
    inputs = example_inputs(step.compiled.capture, step._optimizer, step._batch)
    blocks = {key: [value] for key, value in inputs.items()}
    with pytest.raises(WrongMessage, match=message):
        run_pipeline(program, [blocks, blocks], widen=True)


def test_a_message_that_nobody_receives_is_refused() -> None:
    step = pipeline()
    module = copy_module(step.compiled.program)
    send = ranks_of(module)[0]["send 1F3"]
    again = send.clone(ip=ir.InsertionPoint(send))
    again.attributes["tag"] = ir.StringAttr.get("1F4", again.context)
    again.move_after(send)
    program = read_pipeline(module)
    assert program is not None
    inputs = example_inputs(step.compiled.capture, step._optimizer, step._batch)
    blocks = {key: [value] for key, value in inputs.items()}
    with pytest.raises(WrongMessage, match="rank 1 gets 1F4 from rank 0 where it expects the end"):
        run_pipeline(program, [blocks, blocks], widen=True)


def test_a_wrong_program_in_an_artefact_is_refused(tmp_path: Path) -> None:
    """Level 3 was edited, and ``program.py``, which it emits, and the manifest go with it."""
    pipeline().save(tmp_path / "out")
    folder, module = tmp_path / "out", copy_module(pipeline().compiled.program)
    assert check_artefact(folder, 1).passed
    swapped_sends(ranks_of(module))
    edited = {"levels/3-pipeline.mlir": str(module), "program.py": emit_program(module)}
    manifest = json.loads((folder / MANIFEST).read_text())
    for name, text in edited.items():
        (folder / name).write_text(text)
        manifest["files"][name] |= {"sha256": sha256(folder / name), "size": len(text.encode())}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(RankProgramBroken, match="the send of 1F1"):
        check_artefact(folder, 1)


def _swap_lines(text: str, first: str, second: str) -> str:
    one, other = (re.findall(f"^.*{part}.*\n", text, re.MULTILINE)[0] for part in (first, second))
    return text.replace(one, "%").replace(other, one).replace("%", other)


def _swap_words(text: str, first: str, second: str) -> str:
    return text.replace(first, "%").replace(second, first).replace("%", second)


EDITS = {
    "sends": (lambda t: _swap_lines(t, "to=1.*# 1F2", "to=1.*# 1F3"), "transfer"),
    "receives": (lambda t: _swap_lines(t, "source=1.*# 0B1", "source=1.*# 0B2"), "transfer|0B"),
    "labels": (lambda t: _swap_words(t, "1F0 ", "1F1 "), "where the schedule has"),
    "micro-batch": (
        lambda t: t.replace("stage_1_F(rank, 2", "stage_1_F(rank, 1"),
        "1F2 runs stage_1_F for micro-batch 1",
    ),
    "lost": (lambda t: re.sub(r".*stage_1_F\(rank, 2.*\n", "", t), "where the schedule has|ACTIONS lists"),
    "group": (lambda t: t.replace("to=1, axes=PIPE)  # 1F2", "to=1, axes=GROUPS)  # 1F2"), "transfer"),
    "tags": (lambda t: _swap_words(t, "# 1F2", "# 1F3"), "another micro-batch's"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_wrong_emitted_program_is_refused(edit: str) -> None:
    program = pipeline().compiled.program
    text = emit_program(program)
    change, problem = EDITS[edit]
    edited = change(text)
    assert edited != text
    with pytest.raises(RankProgramBroken, match=problem):
        check_program(edited, program)
