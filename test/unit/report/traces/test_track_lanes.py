"""Slices that overlap are put on several tracks."""

from __future__ import annotations

import random
from itertools import pairwise

from shardc.report.traces.tracks import Slice, tracks_of


def test_tracks_hold_all_slices_and_none_overlap() -> None:
    draw = random.Random(0)
    for _ in range(50):
        starts = [draw.uniform(0, 10) for _ in range(30)]
        slices = [Slice(str(n), start, start + draw.uniform(0, 3)) for n, start in enumerate(starts)]
        tracks = tracks_of("lane", slices)
        assert sorted(s.name for t in tracks for s in t.slices) == sorted(s.name for s in slices)
        for track in tracks:
            assert all(a.end_s <= b.start_s for a, b in pairwise(track.slices))
        most = max(sum(s.start_s <= at < s.end_s for s in slices) for at in starts)
        assert len(tracks) == most


def test_names_of_tracks() -> None:
    tracks = tracks_of("messages", [Slice("a", 0, 2), Slice("b", 1, 3), Slice("c", 2, 4)])
    assert [(t.name, [s.name for s in t.slices]) for t in tracks] == [
        ("messages", ["a", "c"]),
        ("messages (2)", ["b"]),
    ]
