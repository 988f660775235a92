"""``expert_copies=``: accepted forms, stored values, and errors."""

from __future__ import annotations

import pytest

from shardc.diagnostics.passes.experts import BadCopies
from shardc.diagnostics.passes.search import NotSearched
from shardc.options.experts import read_copies, read_pass_option
from shardc.options.parallelism import Parallelism

MESH = {"expert": 2}


def test_a_list_is_for_all_layers() -> None:
    options = Parallelism(MESH, plan="expert", expert_copies=[3, 17])
    assert options.expert_copies == {"*": (3, 17)}
    assert options.experts.copies == (("*", (3, 17)),)
    assert Parallelism(MESH).experts.copies == ()


def test_a_list_for_each_layer() -> None:
    copies = {"layers.0.*": [3, 17], "layers.1.*": (5,)}
    assert Parallelism(MESH, expert_copies=copies).expert_copies == {
        "layers.0.*": (3, 17),
        "layers.1.*": (5,),
    }


def test_a_flag() -> None:
    assert read_copies("3:17") == {"*": [3, 17]}
    assert read_copies("layers.0.*=3:17, layers.1.*=5") == {"layers.0.*": [3, 17], "layers.1.*": [5]}
    assert read_pass_option("3:17") == (("*", (3, 17)),)


@pytest.mark.parametrize("given", ["hot", 3, [], [3, 3], [-1], [1.0], [True], {"layers.0.*": "3"}])
def test_copies_that_cannot_be(given: object) -> None:
    with pytest.raises(BadCopies, match=r"whole and from 0(?s:.)*expert_copies=\[3, 17\]"):
        Parallelism(MESH, expert_copies=given)


@pytest.mark.parametrize("text", ["hot", "", "layers.0.*=3,layers.0.*=5", "3:-1", "layers.0.*="])
def test_flags_that_cannot_be_read(text: str) -> None:
    with pytest.raises(BadCopies):
        Parallelism(MESH, expert_copies=read_copies(text))


def test_a_search_does_not_know_copies() -> None:
    with pytest.raises(NotSearched, match="expert_copies"):
        Parallelism({"a": 2}, plan="auto", expert_copies=[3])
