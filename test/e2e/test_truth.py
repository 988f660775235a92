"""``test/bench/truth.py``: predicted times of measured rows, through shardc's own programs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = (
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
    "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)"
)
ROWS = (  # vTrain (VIA-Research/vTrain, MIT)
    "512,1536,6,8192,64,48,2048,8,8,8,15775.3",
    "512,1536,4,8192,64,48,2048,8,8,8,14967.1",
    "512,1536,2,12288,96,96,2048,2,8,32,57411.2",
)
MEGATRON = """
| params | heads | hidden | layers | TP | PP | GPUs | batch | achieved TFLOP/s a GPU |
|---|---|---|---|---|---|---|---|---|
| 7.5B | 32 | 4096 | 36 | 4 | 1 | 128 | 512 | 142 |
"""


def truth(path: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, ROOT / "test/bench/truth.py", path], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_rows_are_predicted_and_ordered(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([HEADER, *ROWS]) + "\n")
    *rows, _, pairs, last = truth(path)
    assert len(rows) == len(ROWS)
    assert "pairs of one model 1/1" in pairs
    mape, most = last.split()[1], last.split()[3]
    assert float(mape.rstrip("%")) < 6
    assert float(most.rstrip("%")) < 10
    assert last.endswith("order 1.00 pick 1.00")


@pytest.mark.slow
def test_a_row_without_a_micro_batch_gets_the_fastest_that_fits(tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    path.write_text(MEGATRON)
    (row, *_, last) = truth(path)
    assert " b" in row
    assert float(last.split()[1].rstrip("%")) < 8


@pytest.mark.slow
def test_a_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    command = [sys.executable, ROOT / "test/bench/truth.py", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no table with the columns" in done.stderr
