"""Predicted iteration times of Megatron on the clusters that rows were measured on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from megatron.rows import Row
from megatron.work import work_of
from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.names import find_cluster
from shardc.cost.origin import Assumed, Fitted
from shardc.cost.step.on_cluster import costs_on
from shardc.cost.step.step_time import StepTime, step_time_of
from shardc.passes.pipeline.schedules.one_f_one_b import interleaved, one_f_one_b

_SINGLE = Fitted("vTrain's 60 single-node rows (decision 77)")
_MULTI = Fitted("vTrain's 20 multi-node rows (decision 77)")
_BOTH = Fitted("vTrain's 60 single-node and 20 multi-node rows (decision 77)")
_SELENE = Fitted("five rows of Megatron's table (decision 77)")

NODE_CALL_S: Annotated[float, _SINGLE] = 44.5e-6
"""Seconds of a host of the single node for each kernel that Megatron-DeepSpeed starts."""
NODES_CALL_S: Annotated[float, _MULTI] = 113e-6
"""The same of a host of vTrain's cluster; one row is bound by it."""
ACTION_S: Annotated[float, _BOTH] = 1.0e-3
"""Seconds of DeepSpeed's engine around each forward and backward of a micro-batch."""
SELENE_REACHED: Annotated[float, _SELENE] = 0.91
"""Rate of products on Selene over that on vTrain's nodes."""
MICRO_BATCHES: Annotated[tuple[int, ...], Assumed("powers of two, as in Megatron's examples")] = (1, 2, 4, 8)


@dataclass(frozen=True)
class Prediction:
    """The time of a step, with the micro-batch that it is for, and the stages of a rank (``chunks``)."""

    time: StepTime
    micro_batch: int
    chunks: int = 1

    @property
    def seconds(self) -> float:
        return self.time.seconds


def predict(row: Row) -> Prediction:
    """The time of a row; where it does not say its micro-batch, by the fastest with which it fits."""
    if row.micro_batch:
        return _prediction(row, row.micro_batch, 1)
    return min((_prediction(row, b, v) for b, v in choices(row)), key=lambda p: p.seconds)


def choices(row: Row) -> Iterator[tuple[int, int]]:
    """Micro-batches and stages a rank that divide the row's batch and layers and fit into memory."""
    layers = row.layers // row.pipe
    for micro_batch in MICRO_BATCHES:
        count = row.micro_batches(micro_batch)
        chunks = [v for v in range(1, layers + 1) if layers % v == 0 and (v == 1 or count % row.pipe == 0)]
        for v in chunks if row.pipe > 1 else [1]:
            if count and memory_bytes(row, micro_batch, v) < cluster_of(row).devices[0].memory_bytes:
                yield micro_batch, v


def memory_bytes(row: Row, micro_batch: int, chunks: int) -> float:
    """Bytes that a device of the first stage holds.

    Mixed precision with Adam takes 18 bytes a parameter (gradients in f16). Activations are those of
    Korthikanti et al. 2022: 2 s b h a layer that is recomputed, for each micro-batch in flight, and once a
    whole layer's.
    """
    h, s, b, t = row.hidden, row.sequence, micro_batch, row.tensor
    parameters = (12 * h * h * row.layers / row.pipe + (row.vocabulary + s) * h) / t
    flying = row.pipe * (1 + (row.pipe - 1) / (row.pipe * chunks) if chunks > 1 else 1)
    kept = 2 * s * b * h * row.layers / row.pipe * flying
    layer = s * b * h * (10 + 24 / t + 5 * row.heads * s / (h * t))
    return 18 * parameters + kept + layer


def cluster_of(row: Row) -> Cluster:
    """The nodes that a row was measured on."""
    nodes = -(-row.gpus // 8)
    node = {"multi-node": "a100-80-hdr4", "single node": "a100-80-hdr4", "Megatron": "a100-80"}[row.table]
    return find_cluster(f"{node}-8x{nodes}")


def _prediction(row: Row, micro_batch: int, chunks: int) -> Prediction:
    mesh = {"pipe": row.pipe, "data": row.data, "tensor": row.tensor}
    costs = costs_on(cluster_of(row), mesh, "pipe")
    call_s = NODES_CALL_S if row.table == "multi-node" else NODE_CALL_S
    rates = costs.rates
    if row.table == "Megatron":
        rates = replace(rates, matmul_reached=SELENE_REACHED * rates.matmul_reached)
    costs = replace(costs, rates=rates, call_s=call_s, action_s=ACTION_S, overlap=False)
    count = row.micro_batches(micro_batch) or -(-row.batch // (micro_batch * row.data))
    schedule = interleaved(row.pipe, count, chunks) if chunks > 1 else one_f_one_b(row.pipe, count)
    time = step_time_of(work_of(row, micro_batch, row.pipe * chunks), costs, schedule)
    return Prediction(time, micro_batch, chunks)
