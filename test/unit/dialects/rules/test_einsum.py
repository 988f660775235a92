"""Rules as text: printed rules can be read back, and errors name the problem."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardc.diagnostics.dialects.rules import BadRuleText
from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.einsum import parse_rule
from shardc.dialects.rules.proving.execution import call_of, sample
from shardc.dialects.rules.rule import Rule, find_rule

PRINTED: list[tuple[str, tuple[Any, ...]]] = [
    ("aten.mm", (sample(4, 6), sample(6, 2))),
    ("aten.add.Tensor", (sample(4, 1), sample(2, 1, 3))),
    ("aten.view", (sample(2, 12), (8, 3))),
    ("aten.amax", (sample(4, 6), (1,))),
    ("aten.amin", (sample(4, 6), (0,), True)),
    ("aten.addmm", (sample(2), sample(4, 6), sample(6, 2))),
    ("aten.convolution", (sample(4, 6, 8), sample(8, 3, 1), sample(8), (1,), (0,), (1,), False, (0,), 2)),
    ("aten.full", ((4, 6), 2.5)),
    ("aten.sum", (sample(4),)),
]


@pytest.mark.parametrize(("target", "args"), PRINTED, ids=[p[0] for p in PRINTED])
def test_what_is_printed_is_read_back(target: str, args: tuple[Any, ...]) -> None:
    call = call_of(target, args)[0]
    rule = find_rule(call)
    assert rule is not None
    sets = "".join(f" linear={{{','.join(map(str, sorted(s)))}}}" for s in rule.linear)
    read = parse_rule(str(rule) + sets, call)
    assert (read.operands, read.results, read.sizes) == (rule.operands, rule.results, rule.sizes)
    assert (read.reduce, read.replicate, read.linear) == (rule.reduce, rule.replicate, rule.linear)


def call(*operands: tuple[int, ...], result: tuple[int, ...]) -> OpCall:
    types = tuple(TensorType(shape, torch.float32) for shape in operands)
    return OpCall("mylib.op", types, (TensorType(result, torch.float32),))


def test_dots_are_the_dims_left_over() -> None:
    read = parse_rule(
        "([...,d],[d])->([...]) reduce={d} replicate={...}", call((2, 3, 4), (4,), result=(2, 3))
    )
    assert str(read) == "([_1,_0,d],[d])->([_1,_0]) reduce={d} replicate={_1,_0}"


def test_dots_align_at_the_last_dim_and_broadcast() -> None:
    read = parse_rule("([...],[...])->([...])", call((2, 1, 4), (3, 4), result=(2, 3, 4)))
    assert str(read) == "([_2,1,_0],[_1,_0])->([_2,_1,_0])"


def test_one_unknown_factor_of_a_dim_is_what_the_others_leave() -> None:
    read = parse_rule("([(h d),s],[h])->([(h d),s])", call((12, 5), (3,), result=(12, 5)))
    assert read.sizes == {"h": 3, "d": 4, "s": 5}


def test_a_factor_of_one_element_everywhere_stays() -> None:
    assert parse_rule("([i,j])->([i,j])", call((1, 4), result=(1, 4))).sizes == {"i": 1, "j": 4}


UNREADABLE = {
    "[i,j]->[i,j]": "expected '(', but found '['",
    "([i,j])->([i,j]": "expected ')', but found 'the end'",
    "([i;j])->([i,j])": "';j])->([i,' is not part of a rule",
    "([i,j])->([i,2])": "'2' is not the name of a factor",
    "([i,j])->([i,j]) add={j}": "'add' is not one of reduce, reduce_max, reduce_min, replicate, linear",
    "([i,j],[j])->([i,j])": "it has 3 tensors, the call 2",
    "([i])->([i])": "tensor 0 has 2 dims in the call",
    "([...,...])->([i,j])": "tensor 0 has 2 dims in the call",
    "([(a b),j])->([(a b),j])": "the sizes of a and b cannot be inferred",
    "([(i j),j])->([(i j),j])": "(i j) must have 4 elements, but the known factors have 6",
    "([i,j])->([i,j]) linear={i}": "linear lists operands by number, and 'i' is not a number",
}


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_is_wrong_is_named(text: str) -> None:
    with pytest.raises(BadRuleText) as caught:
        parse_rule(text, call((4, 6), result=(4, 6)))
    message = UNREADABLE[text]
    message = message.replace("(i j)", "i j")
    assert message in str(caught.value) and text in str(caught.value)


def test_the_result_is_a_rule() -> None:
    assert isinstance(parse_rule("([])->([])", call((), result=())), Rule)
