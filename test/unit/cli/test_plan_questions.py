"""The questions of pytorch#125323 that ``shardc plan`` answers, as ``docs/guide/plan.md`` asks them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from planned import write_config

from shardc.cli import main

QUESTIONS: dict[str, tuple[list[str], str]] = {
    "the peak now": (["-m", "data=4", "-p", "zero3"], r"fits: .* at the peak"),
    "another wrapping": (["-m", "data=4", "-p", "zero3", "-p", "zero2", "-p", "data"], "3 of 3 plans fit"),
    "the largest batch": (["-m", "data=4", "-p", "data", "--largest", "batch"], "largest batch that fits"),
    "the longest sequence": (
        ["-m", "data=4", "-p", "data", "--largest", "length"],
        "largest length that fits, in steps of 128: 256, the most that the model takes",
    ),
    "data-parallel degrees": (
        ["-m", "data=2,tensor=2", "-m", "data=4,tensor=1", "-p", "zero3*tensor"],
        "2 of 2 plans fit",
    ),
    "mixed precision": (["-m", "data=4", "-p", "data", "--precision", "mixed"], "fits:"),
    "a recompute policy": (["-m", "data=4", "-p", "data", "--recompute", "full"], "fits:"),
    "two recompute policies": (["-m", "data=4", "-p", "zero3", "--recompute", "selective"], "fits:"),
    "recomputation of stages": (
        ["-m", "pipe=2,data=2", "-p", "pipeline*data", "--recompute", "full"],
        "pipeline of 2",
    ),
    "optimizer offload": (
        ["-m", "data=4", "-p", "data", "--offload", "optimizer"],
        r"optimizer state in the host's memory(.|\n)*copies of optimizer state",
    ),
    "f32 reductions": (["-m", "data=4", "-p", "zero2", "--reduce-dtype", "float32"], "fits:"),
    "hybrid sharding": (
        ["-m", "replica=2,data=2", "-p", "data:replica*zero3:data", "-p", "zero3:replica*zero3:data"],
        "2 of 2 plans fit",
    ),
    "parameters kept after forward": (["-m", "data=4", "-p", "zero3", "--no-reshard-after-forward"], "fits:"),
    "parameters kept after forward of stages": (
        ["-m", "pipe=2,data=2", "-p", "pipeline*zero3", "--batch", "16", "--gather", "step"],
        r"gathered, or on its way",
    ),
    "which module holds the memory": (
        ["-m", "data=4", "-p", "zero3"],
        r"what modules hold at the peak\n.*made by its code\n  LlamaForCausalLM +the model",
    ),
    "a smaller mesh": (["-m", "data=4", "-m", "data=2", "-p", "zero3"], "2 of 2 plans fit"),
    "another cluster": (["-m", "data=4", "-p", "zero3", "-c", "a100-80"], "2 of 2 plans fit"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered(question: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments, said = QUESTIONS[question]
    path = write_config(tmp_path, max_position_embeddings=256)
    if question == "the largest batch":
        text = (Path(__file__).parents[3] / "python/shardc/cost/cluster/ready/h100.yaml").read_text()
        cluster = tmp_path / "small.yaml"
        cluster.write_text(re.sub(r"(memory_bytes:) \S+", r"\1 8e6", text, count=1))
    else:
        cluster = Path("h100")
    given = [] if {"batch", "--batch"} & {*arguments} else ["--batch", "4"]
    length = [] if "length" in arguments else ["--length", "16"]
    assert main(["plan", str(path), "-c", str(cluster), *given, *length, *arguments]) == 0
    assert re.search(said, capfd.readouterr().out)
