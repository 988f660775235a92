"""``shardc doctor``: its report, and an exit code that is 0 only if everything works."""

from pathlib import Path

import pytest
import torch

from shardc.cli import main
from shardc.commands.doctor import findings


def test_it_names_packages_instruction_sets_and_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    main(["doctor"])
    said = capsys.readouterr().out
    for text in (
        torch.__version__,
        "torch-mlir",
        "linker",
        "GPU",
        str(tmp_path / "cache"),
        "tuning database",
    ):
        assert text in said
    assert not (tmp_path / "cache").exists()


def test_what_does_not_work_is_marked_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHARDC_TARGET", "riscv64")
    assert not next(f for f in findings() if "cpu" in f.name).works
    assert main(["doctor"]) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if "kernels of the cpu" in line]
    assert line.strip().startswith("no") and "UnsupportedTarget" in line and "riscv64" in line
