"""Cuts of a deep forward, found from two shallow ones, and where they are with fewer layers."""

from __future__ import annotations

from itertools import accumulate

from shardc.passes.pipeline.cuts.balance import Forward
from shardc.passes.pipeline.cuts.repeated import Repeated

LAYER = [(4.0, 100), (2.0, 50), (3.0, 80)]
"""Work of each op, and the bytes to send before it."""


def forward(layers: int, layer: list[tuple[float, int]] = LAYER) -> Forward:
    """Return a forward without ops in IR: an embedding, equal layers, and a heavy head."""
    rows = [(1.0, 0), *(layer * layers), (20.0, 100)]
    found = Forward([], {})
    found.ops = [*range(len(rows))]  # pyright: ignore[reportAttributeAccessIssue]
    found.work, found.crossing = [work for work, _ in rows], [*(sent for _, sent in rows), 0, 0]
    found.cost = [0.0, *accumulate(found.work)]
    return found


def between(layers: int) -> Repeated:
    found = Repeated.between(forward(2), forward(3), layers - 2)
    assert found is not None
    return found


def test_the_whole_forward_and_its_cuts() -> None:
    found, whole = between(12), forward(12)
    assert (found.forward.work, found.forward.crossing) == (whole.work, whole.crossing)
    assert found.forward.cost == whole.cost
    assert found.forward.balanced(3) == whole.balanced(3)
    assert (found.period, found.start, found.end) == (3, 1, 37)


def test_stages_keep_so_many_whole_layers_and_their_parts_of_layers() -> None:
    found = between(12)
    cuts = [14, 27]  # within the fifth layer, and within the ninth
    left_out = found.left_out(cuts, 2)
    assert left_out == [2, 2, 1]
    assert found.moved(cuts, left_out) == [8, 15]
    assert found.is_shortened(forward(7), sum(left_out))
    assert not found.is_shortened(forward(6), sum(left_out))
    assert found.left_out(cuts, 5) == [0, 0, 0]


def test_what_does_not_repeat() -> None:
    assert Repeated.between(forward(2), forward(2), 4) is None
    assert Repeated.between(forward(2), forward(3, [(5.0, 1)]), 4) is None
