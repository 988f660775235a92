"""Fragments of the guides run: lines of Python that need a model, commands that need a script or a folder.

``test_guides.py`` runs the guides that have whole scripts. Here each guide gets a small model of the kind
that it is about (``guides.MODELS``). ``...`` in a fragment stands for the model, the optimizer and the batch;
a step that would need other processes is proved in this one instead.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import guides
import pytest
import readme
import torch

import shardc
from shardc.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.processes]
LESS = {
    "--seconds 300": "--seconds 5",
    "--trials 200": "--trials 3",
    "-c h100-8x8 --plan auto": "-c h100-2 --plan auto --search-seconds 1",
    'cluster="h100-8x8")': 'cluster="h100-2", search_seconds=5)',
    "examples/llama.py": "train.py",
}
"""Budgets and sizes in the guides, and those that the tests give."""


def lessened(text: str) -> str:
    for printed, less in LESS.items():
        text = text.replace(printed, less)
    return re.sub(r"\(\s*\.\.\.,", "(model, optimizer, batch,", text)


@pytest.mark.parametrize("name", guides.MODELS)
def test_fragments_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for file, text in guides.clusters(name).items():
        (tmp_path / file).write_text(text)
    torch.manual_seed(0)
    model = guides.MODELS[name]()
    names = {
        "shardc": shardc,
        "torch": torch,
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
        "batch": guides.batch(),
    }
    blocks = guides.fragments(name)
    assert blocks
    for block in (guides.BEFORE.get(name, ""), *blocks):
        code = lessened(block).replace("step(batch)", "step.check()")
        exec(compile(code, f"{name}.md", "exec"), names)


@pytest.mark.parametrize("name", guides.COMMANDS)
def test_commands_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHARDC_TUNING_DB", str(tmp_path / "tuning.db"))
    (tmp_path / "train.py").write_text(readme.files()["train.py"])
    guides.write_config(tmp_path)
    commands = guides.commands(name)
    assert commands
    made = "shardc compile train.py --mesh data=2,tensor=2 --plan data*tensor -o out/"
    if any("out/" in command for command in commands) and not any("-o out/" in c for c in commands):
        assert main(shlex.split(made)[1:]) == 0
    for command in commands:
        assert main(shlex.split(lessened(command))[1:]) == 0, command
