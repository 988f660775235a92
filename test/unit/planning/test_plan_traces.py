"""Predicted traces, read back by decoders that are not ours, against the prices that they are of."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from importlib.resources import files
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from grpc_tools import protoc
from perfetto_reader import read_perfetto
from planned import write_config

from shardc.cost.cluster.names import find_cluster
from shardc.planning.candidates import Candidate
from shardc.planning.price import Price
from shardc.planning.pricer import Pricer
from shardc.planning.question import Sizes, read_config
from shardc.planning.traces import chakra_files, curve_of, rank_spans, trace_of
from shardc.report.traces.perfetto import perfetto_trace

SCHEMA = Path(__file__).parents[1] / "report" / "traces"
NODE = find_cluster("h100")
CANDIDATES = {
    "zero3*tensor": Candidate({"data": 2, "tensor": 2}, "zero3*tensor"),
    "sequence": Candidate({"data": 1, "tensor": 4}, "sequence"),
    "accumulated": Candidate({"data": 4}, "zero2", 2),
    "pipeline": Candidate({"pipe": 2, "data": 2}, "pipeline*data", 4),
}


@pytest.fixture(scope="module")
def pricer(tmp_path_factory: pytest.TempPathFactory) -> Pricer:
    folder = tmp_path_factory.mktemp("config")
    return Pricer(read_config(write_config(folder), Sizes(8, 32), torch.bfloat16))


@pytest.fixture(scope="module", params=CANDIDATES)
def price(pricer: Pricer, request: pytest.FixtureRequest) -> Price:
    return pricer.price(CANDIDATES[request.param]).on(NODE)


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Message classes that protoc generates from the schema."""
    out = tmp_path_factory.mktemp("generated")
    known = files("grpc_tools") / "_proto"
    arguments = ["", f"-I{SCHEMA}", f"-I{known}", f"--python_out={out}", "chakra_et.proto"]
    assert protoc.main(arguments) == 0
    sys.path.insert(0, str(out))
    try:
        return import_module("chakra_et_pb2")
    finally:
        sys.path.remove(str(out))


@pytest.mark.sampled(1)
def test_slices_are_those_of_the_timeline(price: Price) -> None:
    read = read_perfetto(perfetto_trace(trace_of(price)))
    spans = rank_spans(price)
    assert len(read.processes) == len(spans) == len(price.priced.memory)
    for (name, tracks), rank, memory in zip(read.processes.items(), spans, price.priced.memory, strict=True):
        assert name == f"rank {memory.rank} (predicted)"
        streams = {n: s for n, s in tracks.items() if n == "kernels" or n.startswith("collectives")}
        found = sorted((s[1], s[2]) for slices in streams.values() for s in slices)
        expected = sorted((round(s.start_s * 1e9), round(s.end_s * 1e9)) for s in rank.items)
        assert found == expected
        of_axes = Counter(s.stream for s in rank.items)
        named = {f"collectives over {' x '.join(a)}" if a else "kernels": n for a, n in of_axes.items()}
        assert {n: len(s) for n, s in streams.items()} == named
        sent = [s.item.moved_bytes for s in rank.items if s.item.kind == "collective"]
        shown = [s[3]["bytes"] for n, track in streams.items() if n != "kernels" for s in track]
        assert sum(shown) == sum(sent) > 0
        assert [s[0] for s in tracks.get("actions", ())] == [str(s.action) for s in rank.actions]


def test_the_last_end_is_the_steps_time(price: Price) -> None:
    spans = rank_spans(price)
    assert max(rank.end_s for rank in spans) == pytest.approx(price.time.seconds, rel=1e-9)
    processes = read_perfetto(perfetto_trace(trace_of(price))).processes.values()
    ends = [s[2] for tracks in processes for slices in tracks.values() for s in slices]
    assert max(ends) == pytest.approx(price.time.seconds * 1e9, abs=1)


def test_memory_counters_are_the_curve(price: Price) -> None:
    read = read_perfetto(perfetto_trace(trace_of(price)))
    for counters, memory in zip(read.counters.values(), price.priced.memory, strict=True):
        points, moments = counters["memory of tensors"], curve_of(memory).moments
        assert [held for _, held in points] == [moment.size_bytes for moment in moments]
        assert max(held for _, held in points) == memory.peak_bytes
        times = [when for when, _ in points]
        assert times == sorted(times) and times[0] == 0
        assert price.time.seconds * 5e8 < times[-1] <= price.time.seconds * 1e9 + 1


def read_chakra(content: bytes, schema: ModuleType) -> tuple[Any, list[Any]]:
    file, metadata, nodes = io.BytesIO(content), schema.GlobalMetadata(), []
    metadata.ParseFromString(_delimited(file))
    while part := _delimited(file):
        nodes.append(schema.Node.FromString(part))
    return metadata, nodes


def _delimited(file: io.BytesIO) -> bytes:
    size = shift = 0
    while byte := file.read(1):
        size |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            break
    return file.read(size)


def about(node: Any) -> dict[str, Any]:
    return {a.name: getattr(a, a.WhichOneof("value")) for a in node.attr}


def test_chakra_nodes_are_those_of_the_timeline(price: Price, schema: ModuleType) -> None:
    written, spans = chakra_files(price), rank_spans(price)
    assert [str(p) for p in written] == [f"rank.{rank.rank}.et" for rank in price.priced.memory]
    mesh = price.priced.candidate.mesh
    for content, rank in zip(written.values(), spans, strict=True):
        metadata, nodes = read_chakra(content, schema)
        assert metadata.version == "0.0.4"
        assert about(metadata)["mesh"] == ",".join(f"{n}={s}" for n, s in mesh.items())
        assert [node.id for node in nodes] == list(range(len(nodes)))
        assert all(need < node.id for node in nodes for need in (*node.ctrl_deps, *node.data_deps))
        kinds = Counter(schema.NodeType.Name(node.type) for node in nodes)
        collectives = [s.item for s in rank.items if s.item.kind == "collective"]
        assert kinds["COMM_COLL_NODE"] == len(collectives) > 0
        assert kinds["COMP_NODE"] == len(rank.items) - len(collectives)
        assert kinds["COMM_SEND_NODE"] + kinds["COMM_RECV_NODE"] == len(rank.messages)
        made = [node for node in nodes if node.type in (schema.COMP_NODE, schema.COMM_COLL_NODE)]
        for node, span in zip(made, rank.items, strict=True):
            _check_node(node, span.item, list(mesh), schema)
            assert node.start_time_micros == round(span.start_s * 1e6)
            assert node.start_time_micros + node.duration_micros == round(span.end_s * 1e6)
            assert [made.index(nodes[n]) for n in node.data_deps] == list(span.needs)
        flops = sum(about(n)["num_ops"] for n in made if n.type == schema.COMP_NODE)
        assert flops == sum(s.item.flops for s in rank.items)


def _check_node(node: Any, item: Any, axes: Sequence[str], schema: ModuleType) -> None:
    found = about(node)
    if node.type == schema.COMP_NODE:
        assert found["tensor_size"] == item.moved_bytes and item.kind != "collective"
        return
    kinds = {"ALL_TO_ALL": ("all_to_all", "permute", "exchange")}
    name = schema.CollectiveCommType.Name(found["comm_type"])
    assert item.collective in kinds.get(name, (name.lower(),))
    assert found["comm_size"] == item.moved_bytes
    spanned = {axis.name for axis in item.axes}
    assert list(found["involved_dim"].values) == [axis in spanned for axis in reversed(axes)]


def test_what_ranks_of_a_pipeline_send_is_received(pricer: Pricer, schema: ModuleType) -> None:
    price = pricer.price(CANDIDATES["pipeline"]).on(NODE)
    nodes = [n for content in chakra_files(price).values() for n in read_chakra(content, schema)[1]]
    keys = ("comm_src", "comm_dst", "comm_tag", "comm_size")
    messages: dict[int, list[tuple[int, ...]]] = {schema.COMM_SEND_NODE: [], schema.COMM_RECV_NODE: []}
    for node in nodes:
        if node.type in messages:
            messages[node.type].append(tuple(about(node)[key] for key in keys))
    sent, received = messages.values()
    assert sorted(sent) == sorted(received)
    assert {row[:2] for row in sent} == {(0, 2), (2, 0)} and len(sent) == 2 * 4
    # a micro-batch's activations: 8 / 2 / 4 samples of 32 tokens of 64 numbers in bf16, and what goes along
    assert min(row[3] for row in sent) >= prod((8 // 2 // 4, 32, 64)) * 2


def test_ranks_with_too_many_items_say_what_is_left_out(
    pricer: Pricer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardc.report.traces.predicted.MOST_ITEMS", 1)
    price = pricer.price(replace(CANDIDATES["pipeline"])).on(NODE)
    for process in trace_of(price):
        assert "kernels and collectives left out" in process.name
        assert not [t.name for t in process.tracks if not t.name.startswith(("actions", "messages"))]
