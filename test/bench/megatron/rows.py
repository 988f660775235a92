"""Rows of measured iteration times: vTrain's CSV files, and the table of Megatron's paper (SC21, Table 1)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

VTRAIN = {
    "gpus": "# GPUs",
    "batch": "global batch",
    "micro_batch": "micro batch",
    "hidden": "hidden size",
    "heads": "attention heads",
    "layers": "# layers",
    "sequence": "sequence length",
    "tensor": "tensor parallelism",
    "data": "data parallelism",
    "pipe": "pipeline parallelism",
}
MEASURED = "iteration time (ms)"
MEGATRON = {
    "heads": "heads",
    "hidden": "hidden",
    "layers": "layers",
    "tensor": "TP",
    "pipe": "PP",
    "gpus": "GPUs",
    "batch": "batch",
}
ACHIEVED = "achieved TFLOP/s a GPU"


@dataclass(frozen=True)
class Row:
    """A measured step. ``micro_batch``: sequences of one on a data rank; 0 where that is not published."""

    gpus: int
    batch: int
    micro_batch: int
    hidden: int
    heads: int
    layers: int
    sequence: int
    tensor: int
    data: int
    pipe: int
    measured_s: float
    vocabulary: int
    table: str

    @property
    def model(self) -> tuple[int, ...]:
        """Rows that have it equal are plans of the same work on as many devices."""
        return self.gpus, self.batch, self.hidden, self.heads, self.layers, self.sequence

    def micro_batches(self, micro_batch: int) -> int:
        """How many there are of a size in a step; 0 where it does not divide the batch."""
        count, rest = divmod(self.batch, micro_batch * self.data)
        return 0 if rest else count

    def __str__(self) -> str:
        plan = f"t{self.tensor} d{self.data} p{self.pipe}"
        return f"h{self.hidden} L{self.layers} batch {self.batch} on {self.gpus}: {plan}"


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV file, or of the tables with such columns of a Markdown file."""
    text = path.read_text(encoding="utf-8-sig")
    tables = _markdown(text) if path.suffix == ".md" else [list(csv.reader(text.splitlines()))]
    found = [row for table in tables for row in _rows(table)]
    if not found:
        raise SystemExit(f"{path}: no table with the columns of vTrain ({MEASURED}) or Megatron ({ACHIEVED})")
    return found


def _markdown(text: str) -> Iterator[list[list[str]]]:
    for lines in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        cells = ([cell.strip() for cell in line.strip("|\n").split("|")] for line in lines.splitlines())
        yield [row for row in cells if not set("".join(row)) <= set("-: ")]


def _rows(table: list[list[str]]) -> Iterator[Row]:
    header, *lines = ([cell.strip() for cell in line] for line in table if line)
    for line in lines:
        cells = dict(zip(header, line, strict=True))
        if cells.keys() >= {*VTRAIN.values(), MEASURED}:
            yield _vtrain(cells)
        elif cells.keys() >= {*MEGATRON.values(), ACHIEVED}:
            yield _megatron(cells)


def _vtrain(cells: Mapping[str, str]) -> Row:
    sizes = {name: int(cells[column]) for name, column in VTRAIN.items()}
    table = "multi-node" if sizes["gpus"] > 8 else "single node"
    return Row(**sizes, measured_s=float(cells[MEASURED]) / 1e3, vocabulary=50257, table=table)


def _megatron(cells: Mapping[str, str]) -> Row:
    """The paper counts 96 B s l h^2 (1 + s / 6h + V / 16 l h) operations a step, recomputation included."""
    sizes = {name: int(cells[column]) for name, column in MEGATRON.items()}
    h, layers, s, vocabulary = sizes["hidden"], sizes["layers"], 2048, 51200
    flops = 96 * sizes["batch"] * s * layers * h**2 * (1 + s / (6 * h) + vocabulary / (16 * layers * h))
    seconds = flops / (sizes["gpus"] * float(cells[ACHIEVED]) * 1e12)
    data = sizes["gpus"] // (sizes["tensor"] * sizes["pipe"])
    more = {"micro_batch": 0, "sequence": s, "data": data, "vocabulary": vocabulary, "table": "Megatron"}
    return Row(**sizes, **more, measured_s=seconds)
