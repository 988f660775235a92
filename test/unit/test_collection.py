"""The garbage collector is restored after a pause, after an error, and inside another pause."""

import gc
from collections.abc import Iterator

import pytest

from shardc.dialects.collection import collection_paused


@pytest.fixture(params=[True, False], ids=["on", "off"])
def was_on(request: pytest.FixtureRequest) -> Iterator[bool]:
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_a_pause_ends(was_on: bool) -> None:
    with collection_paused():
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() is was_on


def test_a_pause_ends_with_an_error(was_on: bool) -> None:
    with pytest.raises(KeyError), collection_paused():
        raise KeyError
    assert gc.isenabled() is was_on
