"""The commands on ``examples/llama.py``, as a fresh user types them."""

from pathlib import Path

import pytest

from shardc.cli import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["--mesh", "data=2,tensor=2", "--plan", "data*tensor"],
        ["--mesh", "pipe=2,data=2", "--plan", "pipeline*data", "--micro-batches", "4", "--schedule", "zb-h1"],
    ],
    ids=["data*tensor", "pipeline*data"],
)
def test_the_example_is_proved(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "out")
    assert main(["compile", str(EXAMPLE), *settings, "-o", folder]) == 0, capsys.readouterr().err
    assert main(["check", folder]) == 0, capsys.readouterr().out
    assert "equal to the single-device program" in capsys.readouterr().out
