"""Memory over time: live tensors at each moment, by line; few moments, the peak among them."""

from __future__ import annotations

import torch

from shardc.backends.torch.memory.curve import Log, Moment, Place, places_of
from shardc.backends.torch.memory.dry_run import META, dry_run

PROGRAM = """
import torch

def step(rank, x):
    # -- forward
    # model.py:1
    y = torch.ops.aten.add.Tensor(x, 1)
    # model.py:2
    z = torch.ops.aten.mul.Tensor(y, y)
    del y
    # -- backward
    w = torch.ops.aten.neg.default(z)
    return (w,)
"""


def test_a_program_has_a_curve() -> None:
    peak = dry_run(PROGRAM, "step", lambda: [None, torch.empty(8, dtype=torch.float32, device=META)])
    forward, second = Place("forward", "model.py:1"), Place("forward", "model.py:2")
    assert peak.curve.places == (Place(), forward, second, Place("backward", "model.py:2"))
    # the argument's reference dies with the call alone
    assert [moment.size_bytes for moment in peak.curve.moments] == [32, 64, 96, 96]
    assert dict(peak.curve.moments[2].held) == {0: 32, 1: 32, 2: 32}
    assert dict(peak.curve.moments[3].held) == {0: 32, 2: 32, 3: 32}
    assert max(moment.size_bytes for moment in peak.curve.moments) == peak.size_bytes


def test_few_moments_hold_the_peak() -> None:
    log = Log()
    for n in range(100):
        log.add(10 if n != 57 else 1000, 1)
        log.add(-10 if n != 57 else -1000, 1)
    curve = log.curve(["# model.py:1"], moments=10)
    assert len(curve.moments) == 10
    assert max(curve.moments, key=lambda m: m.size_bytes) == Moment(58, 1000, 1, ((1, 1000),))


def test_nothing_made_is_no_curve() -> None:
    assert Log().curve([]).moments == ()


def test_places_follow_the_comments() -> None:
    lines = [
        "def step(x):",
        "    # -- forward",
        "    # a.py:1",
        "    y = x  # int64[2]",
        "def other(x):",
        "    z = x",
    ]
    forward = Place("forward", "a.py:1")
    assert places_of(lines) == [Place(), Place(), Place("forward"), forward, forward, Place(), Place()]
