"""``--mesh``: accepted forms, and errors."""

import pytest

from shardc.diagnostics.cli import BadMesh
from shardc.options.parallelism import parse_mesh


def test_axes_keep_their_order() -> None:
    assert list(parse_mesh("data=2, tensor=4").items()) == [("data", 2), ("tensor", 4)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "an axis is missing"),
        ("data=2,", "an axis is missing"),
        ("data", "'data' has no size"),
        ("data:2", "'data:2' has no size"),
        ("2=data", "'2' is not a valid name"),
        ("=2", "'' is not a valid name"),
        ("data=2,data=2", "'data' is given twice"),
        ("data=0", "not '0'"),
        ("data=-1", "not '-1'"),
        ("data=two", "not 'two'"),
        ("data=" + "9" * 5000, "more than there can be ranks, 2147483647"),
        ("data=", "not ''"),
    ],
)
def test_a_bad_mesh_names_the_problem_and_an_example(text: str, problem: str) -> None:
    with pytest.raises(BadMesh) as caught:
        parse_mesh(text)
    message = caught.value.render()
    assert problem in message
    assert repr(text) in message
    assert "--mesh data=2,tensor=2" in message
