"""Prices of programs with few layers: those of children equal those of one process."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from planned import write_config

from shardc.cost.cluster.names import find_cluster
from shardc.diagnostics.base import ShardcError
from shardc.passes.search.solver import ask
from shardc.planning import pricer as pricer_module
from shardc.planning.beside import Asked, Beside
from shardc.planning.candidates import Candidate
from shardc.planning.price import Priced
from shardc.planning.pricer import Pricer
from shardc.planning.programs import Programs
from shardc.planning.question import Sizes, read_config
from shardc.workers.forked import can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="children are forked on Linux alone")
SIZES = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "num_hidden_layers": 9,
}
"""Layers are larger than buckets of collectives, so prices are affine in their number."""
ZERO = Candidate({"data": 2}, "zero3")


def number_of(asked: Asked) -> int:
    return asked.candidate.micro_batches


def children_of(price: Any, count: int) -> Any:
    """Children whose prices are whatever ``price`` returns."""
    return Beside(price, lambda periods: None, [[[n]] for n in range(count)])


def asked(*numbers: int) -> list[Asked]:
    return [Asked(replace(ZERO, micro_batches=number), [[number]]) for number in numbers]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_children_price_what_is_asked_and_this_process_more(count: int) -> None:
    beside = children_of(lambda of: (number_of(of), os.getpid()), count)
    for turn in range(2):
        numbers = [*range(10 * turn, 10 * turn + count)]
        found = beside.prices(asked(*numbers), asked(100))
        assert [number for number, _ in found] == [*numbers, 100]
        *others, own = [process for _, process in found]
        assert own == os.getpid() and own not in others
    beside.end()
    assert beside.prices(asked(1)[:count]) == [(1, os.getpid())]


def test_what_a_child_cannot_price_this_process_prices() -> None:
    here = os.getpid()

    def price(of: Asked) -> int:
        if os.getpid() != here and number_of(of) == 2:
            os._exit(1)
        return number_of(of)

    beside = children_of(price, 2)
    assert beside.prices(asked(1, 2)) == [1, 2]
    assert beside.prices(asked(3, 4), asked(5)) == [3, 4, 5]
    beside.end()


def test_options_that_cannot_be_sent_are_priced_here() -> None:
    beside = children_of(lambda of: (number_of(of), os.getpid()), 2)
    one, other = asked(1, 2)
    found = beside.prices([replace(one, options={"schedule": lambda: None}), other])
    assert found[0] == (1, os.getpid())
    assert found[1][0] == 2 and found[1][1] != os.getpid()
    beside.end()


def test_an_error_is_raised_and_later_prices_are_right() -> None:
    def price(of: Asked) -> int:
        if number_of(of) > 90:
            raise ValueError(number_of(of))
        return number_of(of)

    beside = children_of(price, 2)
    with pytest.raises(ValueError, match="99"):
        beside.prices(asked(1, 99))
    with pytest.raises(ValueError, match="98"):
        beside.prices(asked(1, 2), asked(98))
    assert beside.prices(asked(6, 7), asked(8)) == [6, 7, 8]
    beside.end()


def test_prices_of_children_are_those_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(tmp_path, **SIZES)

    def prices(*, is_forked: bool) -> tuple[Sequence[Priced], int]:
        pricer = Pricer(read_config(config, Sizes(8, 4096), torch.bfloat16))
        monkeypatch.setattr(pricer_module, "can_fork", lambda: is_forked)
        with pricer.beside():
            found = [pricer.price(candidate) for candidate in (ZERO, Candidate({"data": 2}, "data"))]
        return [replace(priced, seconds={}) for priced in found], len(pricer.versions._captures)

    (alone, captures), (forked, fewer) = prices(is_forked=False), prices(is_forked=True)
    assert alone == forked
    assert (captures, fewer) == (3, 1)  # this process compiles the checked program alone


def test_errors_of_a_plan_are_those_of_one_process(tmp_path: Path) -> None:
    config = write_config(tmp_path, **SIZES)
    pricer = Pricer(read_config(config, Sizes(8, 4096), torch.bfloat16))
    texts = []
    for context in (pricer.beside, pricer.beside):
        with context(), pytest.raises(ShardcError) as error:
            pricer.price(Candidate({"data": 2}, "no such plan"))
        texts.append(str(error.value))
    with pytest.raises(ShardcError) as error:
        pricer.price(Candidate({"data": 2}, "no such plan"))
    assert texts == [str(error.value)] * 2


def test_what_began_is_taken_once_and_what_is_not_named_ends() -> None:
    beside = children_of(number_of, 1)
    beside.begin({"a": lambda: (1, os.getpid()), "b": lambda: time.sleep(60)})
    beside.begin({"a": lambda: pytest.fail("it has begun"), "c": lambda: 3})
    assert beside.take("b") is None  # it ended
    one, process = beside.take("a")
    assert one == 1 and process != os.getpid()
    assert beside.take("a") is None
    assert beside.take("c") == 3
    beside.begin({"d": lambda: 1 // 0})
    assert beside.take("d") is None
    beside.end()


def test_no_more_children_begin_than_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "MOST", 2)
    beside = children_of(number_of, 1)
    beside.begin({name: lambda: time.sleep(60) for name in "abc"})
    assert beside.take("c") is None
    beside.end()


def test_a_price_that_began_is_that_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(tmp_path, **SIZES)
    candidate, prices, here = replace(ZERO, plan="auto"), list[Priced](), os.getpid()
    compiled = Programs.compiled

    def elsewhere(programs: Programs, *given: Any, **options: Any) -> Any:
        assert os.getpid() != here, "a child has compiled it"
        return compiled(programs, *given, **options)

    for is_begun in (False, True):
        pricer = Pricer(read_config(config, Sizes(8, 4096), torch.bfloat16), cluster=find_cluster("h100-2"))
        with pricer.beside():
            if is_begun:
                pricer.begin([candidate])
                monkeypatch.setattr(Programs, "compiled", elsewhere)
            prices.append(pricer.price(candidate, explain="plan"))
    one, other = (replace(priced, seconds={}) for priced in prices)
    assert one == other
