"""Reading whether rows had room at their experts."""

from __future__ import annotations

import pytest
import torch

from shardc.runtime.errors import ExpertOverflow
from shardc.runtime.operators.room import Room

LOSS = {"role": "loss", "name": "loss"}
COUNT = {"role": "overflow", "name": "experts"}
ONE = torch.ones(())


def test_programs_that_count_nothing() -> None:
    room: Room[str] = Room([LOSS])
    assert not room
    assert room.split((ONE,)) == ((ONE,), 0)


def test_the_count_is_no_result_of_the_step() -> None:
    room: Room[str] = Room([LOSS, COUNT])
    assert room
    assert room.split((ONE, torch.tensor(3))) == ((ONE,), 3)


def test_the_step_that_has_room() -> None:
    room: Room[str] = Room([LOSS, COUNT])
    room.roomy = lambda: "roomy"
    assert room.other(3, 7) == "roomy"


def test_without_one_it_stops() -> None:
    """An artefact has one program alone."""
    room: Room[str] = Room([LOSS, COUNT])
    with pytest.raises(ExpertOverflow, match=r"3 rows of all devices(?s:.)*step 7(?s:.)*nothing was changed"):
        room.other(3, 7)
