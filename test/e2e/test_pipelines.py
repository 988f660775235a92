"""Steps cut into stages and run under schedules on simulated ranks, against eager training on one device,
to 1e-9 in f64.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

import pytest
import torch
import transformers as hf
from pipelines import PIPELINED, captured, check_pipeline, cut_step
from torch_mlir import ir

import shardc
from shardc.backends.eager.pipeline import read_pipeline, run_pipeline
from shardc.backends.torch.emit import emit_program
from shardc.diagnostics.oracle import Deadlock
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.tuples import element_types
from shardc.dialects.pipe.action import Action, Step, Steps, Transfer
from shardc.dialects.pipe.dependence import Dependences
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.passes.pipeline.checks.check_transfers import check_transfers
from shardc.passes.pipeline.pipe_cut import PipeCut
from shardc.passes.pipeline.ranks.transfers import place_transfers, transfer
from shardc.passes.pipeline.schedules import registry
from shardc.step.values import example_inputs

SCHEDULES = [
    name
    for name, named in registry.SCHEDULES.items()
    if "slices" not in named.options and "changes" not in named.says
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("schedule", [*SCHEDULES, "auto"])
def test_skip_connections_under_each_schedule(schedule: str, ranks: int) -> None:
    """Two steps; ``schedules/`` tries more sizes and models."""
    named = registry.SCHEDULES.get(schedule)
    micro_batches = 2 * ranks if named is None else named.nearest(ranks, 2 * ranks)
    check_pipeline("skips", cut_step("skips", ranks, micro_batches, PipeCut(schedule=schedule)))


MODELS = [
    ("llama", 2, 2, PipeCut()),
    ("llama", 4, 8, PipeCut(schedule="zb-h1")),
    ("t5", 2, 4, PipeCut(schedule="interleaved")),
    ("t5", 4, 4, PipeCut()),
    ("unet", 2, 8, PipeCut(schedule="fill-drain")),
    ("unet", 4, 4, PipeCut(schedule="zb-h1")),
    ("unet", 2, 4, PipeCut(cuts=("up",))),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks", "micro_batches", "cutting"), MODELS, ids=[f"{m[0]}-{m[1]}x{m[2]}" for m in MODELS]
)
def test_models(name: str, ranks: int, micro_batches: int, cutting: PipeCut) -> None:
    check_pipeline(name, cut_step(name, ranks, micro_batches, cutting))


def test_gradients_are_clipped_by_the_norm_of_all_stages() -> None:
    check_pipeline("skips", cut_step("skips", 4, 4, PipeCut(), clip=0.1), clip=0.1)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_micro_batches_of_unequal_size(schedule: str) -> None:
    """16 rows in 3 micro-batches are padded, and the loss is the mean over the rows that there are."""
    check_pipeline("skips", cut_step("skips", 2, 3, PipeCut(schedule=schedule)))


def test_a_tied_weight_is_summed_once_and_not_sent_for_each_micro_batch() -> None:
    module = cut_step("gpt2", 2, 4, PipeCut())
    check_pipeline("gpt2", module)
    program = read_pipeline(module)
    assert program is not None
    assert all(
        ("param", "transformer.wte.weight") in {port.key for port in ports} for ports in program.arguments
    )
    shape = PIPELINED["gpt2"].fresh().transformer.wte.weight.shape
    tags = [
        op.attributes["tag"].value
        for function in program.functions
        for op in (o.operation for o in function.regions[0].blocks[0].operations)
        if op.name == "pipe.send"
        for type_ in element_types(op.operands[0].type) or []
        if (found := read_type(type_)) is not None and found.shape == tuple(shape)
    ]
    assert len(tags) == 2 and all(tag.startswith("sum") for tag in tags)


def test_a_tied_weight_of_halves_is_sent_once_too() -> None:
    """Its gradients of micro-batches are cast to f32 for their sum, each part of them alone."""
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 16, "vocab_size": 96}
    model = hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0))
    ids = torch.randint(0, 96, (8, 16))
    step = shardc.compile_step(
        model.to(torch.bfloat16),
        torch.optim.SGD(model.parameters(), lr=0.1),
        {"input_ids": ids, "labels": ids},
        mesh={"pipe": 2},
        plan="pipeline",
        micro_batches=4,
    )
    assert step.check().passed
    lines = step.compiled.program_text.splitlines()
    tied = [line for line in lines if "rank.receive(" in line and "((96, 32)" in line]
    assert len(tied) == 2 and all("# sum" in line and "torch.float32" in line for line in tied)


@pytest.mark.parametrize(
    ("name", "cuts"), [("gpt2", ()), ("gpt2", ("transformer.h.1",)), ("llama", ("model.layers.1",))]
)
def test_backward_sends_gradients_of_what_forward_sent_and_no_more(name: str, cuts: tuple[str, ...]) -> None:
    """Not a gradient, its views, and its sum for a bias."""
    program = read_pipeline(cut_step(name, 2, 2, PipeCut(cuts=cuts, stages=2)))
    assert program is not None
    sent = {
        op.attributes["tag"].value: [type_.size_bytes for t in types if (type_ := read_type(t)) is not None]
        for function in program.functions
        for op in (o.operation for o in function.regions[0].blocks[0].operations)
        if op.name == "pipe.send"
        for types in [element_types(op.operands[0].type) or []]
    }
    assert sorted(sent["0B0"]) == sorted(sent["1F0"]) == sorted(sent["0B1"])


def test_a_rank_holds_the_state_of_its_stages_alone() -> None:
    program = read_pipeline(cut_step("llama", 2, 4, PipeCut(cuts=("model.layers.1",))))
    assert program is not None
    first, second = ({port.name for port in ports if port.role == "param"} for ports in program.arguments)
    assert not first & second
    assert "model.embed_tokens.weight" in first and "lm_head.weight" in second
    assert all(".layers.1." not in name for name in first) and all(
        ".layers.0." not in name for name in second
    )
    states = [
        {port.name.rpartition("/")[0] for port in ports if port.role == "opt_state"}
        for ports in program.arguments
    ]
    assert states == [first, second]


def test_equal_layers_are_dealt_out_equally() -> None:
    program = read_pipeline(cut_step("tower", 4, 4, PipeCut()))
    assert program is not None
    layers = [
        sorted({port.name.split(".")[1] for port in ports if port.role == "param"})
        for ports in program.arguments
    ]
    assert layers == [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"]]


@pytest.mark.parametrize(("speeds", "first"), [((3.0, 1.0), 6), ((1.0, 3.0), 2), ((1.0, 1.0), 4)])
def test_faster_ranks_get_more_layers(speeds: tuple[float, ...], first: int) -> None:
    module = cut_step("tower", 2, 4, PipeCut(speeds=speeds))
    program = read_pipeline(module)
    assert program is not None
    layers = [{p.name.split(".")[1] for p in ports if p.role == "param"} for ports in program.arguments]
    assert [len(each) for each in layers] == [first, 8 - first]
    check_pipeline("tower", module)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_program_sends_and_receives_in_an_order_that_ends(schedule: str) -> None:
    """As emitted, on streams that run what goes between two ranks in order (NCCL); as in level 3, whatever
    waits.
    """
    stages = 4 * registry.SCHEDULES[schedule].fewest
    cuts = tuple(f"layers.{8 // stages * stage}" for stage in range(1, stages))
    module = cut_step("tower", 4, 8, PipeCut(schedule=schedule, cuts=cuts))
    found = find_schedule(module)
    assert found is not None
    made = read_schedule(found)
    emitted = _emitted_steps(emit_program(module), made)
    check_transfers(made, emitted, "paired")
    check_transfers(made, place_transfers(made), "blocking")
    ahead = [
        any(isinstance(other, Action) for other in row[row.index(step) : row.index(_reader(step, made))])
        for row in emitted
        for step in row
        if isinstance(step, Transfer) and not step.sends
    ]
    assert sum(ahead) > len(ahead) / 2  # started before another action, that computes meanwhile


def _emitted_steps(text: str, schedule: Schedule) -> Steps:
    """What each rank of a program does, in order, from its lines."""
    actions = re.findall(r'^    "(.*)",$', text[text.index("ACTIONS = [") :], re.MULTILINE)
    rows = []
    for rank, function in enumerate(
        re.findall(r"^def step_\d+\((.*?)\n    return", text, re.DOTALL | re.MULTILINE)
    ):
        mine = iter(actions[rank].split())
        row: list[Step] = []
        for line in function.splitlines():
            if re.search(r"\bstage_\d+_\w\(rank", line):
                row.append(Action.parse(next(mine)))
            elif (match := re.search(r"rank\.(send|receive)\(.*# (\d+[FBI]\d+)$", line)) is not None:
                reader = Action.parse(match[2])
                source = re.search(r"source=(\d+)", line)
                holder = rank if source is None else int(source[1])
                needs = (n for n in Dependences(schedule).needs(reader) if n.stage != reader.stage)
                (maker,) = [n for n in needs if schedule.rank_of[n.stage] == holder]
                row.append(transfer(maker, reader, schedule)[match[1] == "receive"])
        rows.append(tuple(row))
    return tuple(rows)


def _reader(receive: Transfer, schedule: Schedule) -> Action:
    if receive.kind == "RECV_F":
        return Action(receive.stage, "F", receive.micro_batch)
    return Dependences(schedule).backward(receive.stage, receive.micro_batch)


Event = tuple[int, int]
"""A rank and the number of a line of its program."""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_was_sent_is_let_go_once_it_has_arrived(schedule: str) -> None:
    """No rank waits for a message before its receiver surely has; few are held at a time."""
    stages = 4 * registry.SCHEDULES[schedule].fewest
    cuts = tuple(f"layers.{8 // stages * stage}" for stage in range(1, stages))
    text = emit_program(cut_step("tower", 4, 8, PipeCut(schedule=schedule, cuts=cuts)))
    sent, taken, ended, most = _messages(text)
    after = {event: set(befores) for event, befores in _orders(sent, taken, text).items()}
    for pair, ends in ended.items():
        for number, event in enumerate(ends):
            assert taken[pair][number] in _all_before(event, after)
    assert sum(map(len, ended.values())) > 0
    if schedule == "1f1b":
        assert most == [
            4,
            4,
            3,
            5,
        ]  # of 16 messages and more; the last rank sends sums and the loss at its end


def _messages(
    text: str,
) -> tuple[dict[Event, list[Event]], dict[Event, list[Event]], dict[Event, list[Event]], list[int]]:
    """By sender and receiver: where each message is sent, waited for, and let go of by its sender; and the
    most that each rank holds.
    """
    sent: dict[Event, list[Event]] = defaultdict(list)
    taken: dict[Event, list[Event]] = defaultdict(list)
    ended: dict[Event, list[Event]] = defaultdict(list)
    most: list[int] = []
    for rank, lines in enumerate(_step_lines(text)):
        posted: dict[str, tuple[Event, int]] = {}
        held = highest = 0
        for number, line in enumerate(lines):
            here = rank, number
            if (match := re.search(r"rank\.send\(.*, to=(\d+)", line)) is not None:
                sent[rank, int(match[1])].append(here)
                held += 1
            elif (match := re.search(r"(\w+) = rank\.receive\(.*, source=(\d+)", line)) is not None:
                pair = int(match[2]), rank
                posted[match[1]] = pair, len(taken[pair])
                taken[pair].append(here)
            elif (match := re.search(r"= (message_\d+)\.wait\(\)", line)) is not None:
                pair, place = posted[match[1]]
                taken[pair][place] = here
            elif (match := re.search(r"rank\.finish_sends\((\d+), to=(\d+)", line)) is not None:
                ended[rank, int(match[2])] += [here] * int(match[1])
                held -= int(match[1])
            highest = max(highest, held)
        most.append(highest)
    return sent, taken, ended, most


def _step_lines(text: str) -> list[list[str]]:
    found = re.findall(r"^def step_\d+\((.*?)\n    return", text, re.DOTALL | re.MULTILINE)
    return [function.splitlines() for function in found]


def _orders(
    sent: Mapping[Event, list[Event]], taken: Mapping[Event, list[Event]], text: str
) -> dict[Event, list[Event]]:
    """What is right before each line: the line before it, and for a wait the message's send."""
    before = {
        (rank, number): [(rank, number - 1)] if number else []
        for rank, lines in enumerate(_step_lines(text))
        for number in range(len(lines))
    }
    for pair, waits in taken.items():
        for wait, send in zip(waits, sent[pair], strict=True):
            before[wait].append(send)
    return before


def _all_before(event: Event, before: Mapping[Event, set[Event]]) -> set[Event]:
    found: set[Event] = set()
    left = [event]
    while left:
        for each in before[left.pop()] - found:
            found.add(each)
            left.append(each)
    return found


def test_a_message_that_nobody_sends_is_a_deadlock() -> None:
    module = cut_step("skips", 2, 2, PipeCut())
    program = read_pipeline(module)
    assert program is not None
    ops = [o.operation for o in program.functions[0].regions[0].blocks[0].operations]
    next(
        op
        for op in ops
        if op.name == "pipe.send" and op.attributes["tag"] == ir.StringAttr.get("1F1", module.context)
    ).erase()
    step = captured("skips")
    (batch,) = PIPELINED["skips"].batches(1)
    values = {key: [value] for key, value in example_inputs(step.capture, step.optimizer, batch).items()}
    with pytest.raises(Deadlock, match="rank 0 for 0B0 of rank 1; rank 1 for 1F1 of rank 0"):
        run_pipeline(program, [values, values], widen=True)
