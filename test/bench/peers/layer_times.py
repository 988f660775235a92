"""Sailor's profile of a model on a kind of GPU, as costs of a chain's stages.

The formulas are those that Sailor's simulator documents by its code: measured seconds of a layer by
micro-batch and tensor degree; links as polynomials of the logarithm of a message's megabytes; a ring
all-reduce of gradients in buckets; 24 bytes a parameter and the activations of 1F1B. They are written anew
here, and every plan's seconds are compared with the simulator's.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path

from chain_costs import Stage

Times = dict[str, dict[str, dict[str, list[float]]]]
FLOAT, STATE = 4, 24
"""Bytes of a value, and of a parameter with its gradient, optimizer state and copies."""
BUCKET = 500_000_000
LIBRARIES = {1: 2.0e9}
"""Bytes beside tensors by tensor degree; :data:`LIBRARIES_OF_GROUPS` for others."""
LIBRARIES_OF_GROUPS = 3.0e9


@dataclass(frozen=True)
class Layer:
    """Of one tensor degree: parameters, values kept for backward, values sent on (of one sample)."""

    parameters: float
    kept: float
    sent: float


@dataclass(frozen=True)
class Profile:
    """A model on a kind of GPU.

    ``layers``: by tensor degree. ``busy_s``, ``update_s``: by micro-batch, tensor degree, then layer.
    ``links``: coefficients by GPUs of the sending and the receiving end.
    """

    layers: dict[int, list[Layer]]
    busy_s: dict[int, dict[int, list[float]]]
    update_s: dict[int, dict[int, list[float]]]
    links: dict[tuple[int, int], list[float]]
    memory_bytes: float

    @property
    def count(self) -> int:
        return len(self.layers[1])

    def send_s(self, size_bytes: float, sender: int, receiver: int) -> float:
        """Return the seconds of a message between stages of so many GPUs a replica."""
        return seconds_of(size_bytes, tuple(self.links[sender, receiver]))

    def all_reduce_s(self, size_bytes: float, ranks: int) -> float:
        """Return the seconds of a ring all-reduce in buckets."""
        whole, rest = divmod(size_bytes, BUCKET)
        sizes = [(BUCKET, whole), (rest, 1)] if rest else [(BUCKET, whole)]
        links = tuple(self.links[1, 1])
        return sum(
            n * 2 * (ranks - 1) * seconds_of(size / ranks, links) for size, n in sizes if n and ranks > 1
        )

    @cached_property
    def _sizes(self) -> list[float]:
        """Bytes of the gradients of all intervals of layers."""
        before = [0.0, *accumulate(layer.parameters * FLOAT for layer in self.layers[1])]
        return sorted({end - start for start, end in itertools.combinations(before, 2)})

    @cached_property
    def _known(self) -> dict[tuple[int, int, tuple[int, ...]], float]:
        return {}

    def least_all_reduce_s(self, stages: int, ranks: int, tensor: tuple[int, ...]) -> float:
        """Return a lower bound on the slowest all-reduce of ``stages``, of which one has an equal share."""
        asked = stages, ranks, tensor
        if asked not in self._known:
            share = self._sizes[-1] / stages * (1 - 1e-9)
            sizes = {size / min(4, degree) for size in self._sizes if size >= share for degree in tensor}
            self._known[asked] = min(self.all_reduce_s(size, ranks) for size in sizes)
        return self._known[asked]


@lru_cache(maxsize=1 << 16)
def seconds_of(size_bytes: float, coefficients: tuple[float, ...]) -> float:
    """Return the seconds of a message over a link whose GB/s is a polynomial of log2 of its MB."""
    megabytes = math.log2(size_bytes / 1e6)
    rate = sum(c * megabytes ** (len(coefficients) - 1 - i) for i, c in enumerate(coefficients))
    return size_bytes / 1e9 / rate


def profile_of(planner: Path, model: str, gpu: str) -> Profile:
    """Read a profile from Sailor's ``Planner`` folder."""
    times = json.loads((planner / "simulations/profiles_tmp.json").read_text())[model][gpu]
    sizes = json.loads((planner / "llm_info.json").read_text())[model]
    cluster = json.loads((planner / "simulations/configs/basic_cluster_config.json").read_text())
    links = json.loads((planner.parent / "providers/multizone_bandwidths_het.json").read_text())
    zone = cluster["zone"]
    ends = links[zone][gpu]
    return Profile(
        {int(t): [_layer(rows[str(n)]) for n in range(len(rows))] for t, rows in sizes.items()},
        _by_degree(times, lambda row: row[0] + row[1]),
        _by_degree(times, lambda row: row[2]),
        {(int(a), int(b)): c[0] for a, to in ends.items() for b, c in to[zone][gpu].items()},
        cluster[gpu]["mem_per_gpu"],
    )


def _layer(row: dict[str, float]) -> Layer:
    return Layer(row["params_floats"], row["act_mem_floats"], row["act_output_floats"])


def _by_degree(
    times: dict[str, dict[str, dict[str, list[float]]]], of: object
) -> dict[int, dict[int, list[float]]]:
    return {
        int(batch): {int(t): [of(rows[str(n)]) for n in range(len(rows))] for t, rows in degrees.items()}
        for batch, degrees in times.items()
    }


@dataclass(frozen=True)
class Costs:
    """Costs of ``stages`` stages, each on ``data`` replicas of a tensor group; a kind is a tensor degree.

    ``micro_batch``: samples. ``groups``: devices for each replica of the pipeline.
    """

    profile: Profile
    stages: int
    data: int
    micro_batch: int
    tensor: Sequence[int]
    groups: int

    @property
    def layers(self) -> int:
        return self.profile.count

    @cached_property
    def kinds(self) -> Sequence[tuple[int, ...]]:
        return [(degree,) for degree in self.tensor]

    @property
    def pools(self) -> tuple[int, ...]:
        return (self.groups,)

    @cached_property
    def _work(self) -> list[list[float]]:
        rows = self.profile.busy_s[self.micro_batch]
        return [[0.0, *accumulate(rows[degree])] for degree in self.tensor]

    @cached_property
    def _sums(self) -> list[tuple[list[float], list[float]]]:
        found = []
        for degree in self.tensor:
            layers = self.profile.layers[degree]
            parameters, kept = (layer.parameters for layer in layers), (layer.kept for layer in layers)
            found.append(([0.0, *accumulate(parameters)], [0.0, *accumulate(kept)]))
        return found

    @cached_property
    def _weights(self) -> list[float]:
        return [0.0, *accumulate(layer.parameters * FLOAT for layer in self.profile.layers[1])]

    def fits(self, place: int, start: int, end: int, kind: int) -> bool:
        parameters, kept = self._sums[kind]
        state = (parameters[end] - parameters[start]) * STATE
        activations = (kept[end] - kept[start]) * self.micro_batch * FLOAT * (self.stages - place)
        libraries = LIBRARIES.get(self.tensor[kind], LIBRARIES_OF_GROUPS)
        return state + activations + libraries <= self.profile.memory_bytes

    def least_s(self, start: int, end: int, kind: int) -> float:
        return self._work[kind][end] - self._work[kind][start]

    def busy_s(self, stage: Stage) -> float:
        return self.least_s(stage.start, stage.end, stage.kind) + self._messages_s(stage)

    def _messages_s(self, stage: Stage) -> float:
        """Return the seconds of messages: activations to the next stage, gradients to the one before.

        The outermost stages wait for what they sent as well, the first only with more than 3 stages.
        """
        if self.stages == 1:
            return 0.0
        own = self.tensor[stage.kind]
        if stage.place == 0:
            ways = 1 if self.stages <= 3 else 2
            return ways * self._sent_s(stage.end - 1, own, self.tensor[stage.after])
        back_s = self._sent_s(stage.start, own, self.tensor[stage.before])
        if stage.place == self.stages - 1:
            return 2 * back_s
        return back_s + self._sent_s(stage.end - 1, own, self.tensor[stage.after])

    @cached_property
    def least_message_s(self) -> float:
        """Lower bound on the seconds of any message between stages; 0 without stages."""
        if self.stages == 1:
            return 0.0
        layers, pairs = range(self.layers), itertools.product(self.tensor, repeat=2)
        return min(self._sent_s(layer, *pair) for pair in pairs for layer in layers)

    @property
    def least_end_s(self) -> float:
        """Lower bound on the seconds after the last micro-batch: one stage has an equal share of weights."""
        rows = self.profile.update_s[self.micro_batch]
        update_s = min(min(rows[degree]) for degree in self.tensor)
        return update_s + self.profile.least_all_reduce_s(self.stages, self.data, tuple(self.tensor))

    def _sent_s(self, layer: int, sender: int, receiver: int) -> float:
        size_bytes = self.profile.layers[1][layer].sent * FLOAT * self.micro_batch
        return self.profile.send_s(size_bytes, sender, receiver)

    def ends_s(self, start: int, end: int, kind: int) -> tuple[float, ...]:
        """Return the seconds of the optimizer, which the profile has for a stage, and of the all-reduce."""
        degree = self.tensor[kind]
        update_s = self.profile.update_s[self.micro_batch][degree][start]
        size_bytes = (self._weights[end] - self._weights[start]) / min(4, degree)
        return update_s, self.profile.all_reduce_s(size_bytes, self.data)
