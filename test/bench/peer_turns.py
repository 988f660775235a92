"""Steps of one training by us and by a peer: equal losses, time in turn, and the table of both."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from statistics import median

import torch.distributed as dist
from four_process_step import Step, losses, time_in_turn
from machine import heading, table

COLUMNS = ("step", "median ms", "least ms", "time / peer's", "CPU ms, 4 ranks", "CPU / peer's")
Turns = Mapping[str, tuple[list[float], list[float]]]


def compare(
    title: str, steps: dict[str, Step], peers: Mapping[str, str], options: argparse.Namespace
) -> None:
    """Time steps beside their peers, and print the table on rank 0.

    Args:
        title: What is trained, with its sizes.
        steps: By name; all start from one model.
        peers: The name of the peer of each step.
        options: ``warmup`` and ``steps``: how many turns are left out, and how many count.

    Raises:
        AssertionError: First losses differ by more than 1e-5 of them, or last ones by more than 1e-3.
    """
    first = losses(steps)
    taken = time_in_turn(steps, options)
    last = losses(steps)
    for name in steps:
        for found, bound in ((first, 1e-5), (last, 1e-3)):
            assert abs(found[name] / found[peers[name]] - 1) < bound, (name, found)
    if dist.get_rank() == 0:
        rows = [[*_row(n, peers[n], taken), f"{first[n]:.5f}", f"{last[n]:.5f}"] for n in steps]
        print(heading(title) + "\n" + table([*COLUMNS, "first loss", "last"], rows))


def _row(name: str, peer: str, taken: Turns) -> list[object]:
    (wall, cpu), (peer_wall, peer_cpu) = taken[name], taken[peer]
    ratios = [_ratio(wall, peer_wall), _ratio(cpu, peer_cpu)]
    return [name, 1e3 * median(wall), 1e3 * min(wall), ratios[0], 1e3 * median(cpu), ratios[1]]


def _ratio(mine: list[float], theirs: list[float]) -> str:
    return f"{median(a / b for a, b in zip(mine, theirs, strict=True)):.2f}x"
