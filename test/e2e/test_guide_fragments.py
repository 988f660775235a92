"""Fragments of the guides run: lines of Python that need a model, commands that need a script or a folder.

``test_guides.py`` runs the guides that have whole scripts. Here each guide gets a small model of the kind
that it is about. ``...`` in a fragment stands for the model, the optimizer and the batch; a step that would
need other processes is proved in this one instead.
"""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
from pathlib import Path

import pytest
import readme
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

import shardc
from shardc.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.processes]
SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
}
BUDGETS = {"--seconds 300": "--seconds 5", "--trials 200": "--trials 3"}
"""Budgets of the tuner in the guides, and those that the test gives."""


def _llama(layers: int) -> nn.Module:
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_hidden_layers=layers))


def _mixtral() -> nn.Module:
    sizes = {**SIZES, "num_local_experts": 20, "num_experts_per_tok": 2, "num_hidden_layers": 2}
    return MixtralForCausalLM(MixtralConfig(**sizes))


MODELS = {
    "clusters": lambda: _llama(2),
    "custom_operators": lambda: _llama(1),
    "experts": _mixtral,
    "long_sequences": lambda: _llama(2),
    "torch_compile": lambda: nn.Linear(4, 2),
    "unequal": lambda: _llama(2),
}
"""A model for the fragments of each guide."""
COMMANDS = ["elastic", "traces", "tuning"]
"""Guides with indented lines of commands, which take seconds here."""


def text_of(name: str) -> str:
    return (readme.ROOT / "docs" / "guide" / f"{name}.md").read_text()


def indented(text: str) -> list[str]:
    """The indented blocks outside of fences."""
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", plain, re.M)]


def fragments(name: str) -> list[str]:
    """The blocks of Python of a guide: fenced ones, and indented ones that use shardc."""
    text = text_of(name)
    found = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return found + [block for block in indented(text) if re.search(r"\bshardc\.", block) and _parses(block)]


def _parses(block: str) -> bool:
    try:
        ast.parse(block)
    except SyntaxError:
        return False
    return True


@pytest.mark.parametrize("name", MODELS)
def test_fragments_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = MODELS[name]()
    ids = torch.randint(64, (64, 24))
    names = {
        "shardc": shardc,
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
        "batch": {"input_ids": ids, "labels": ids},
    }
    blocks = fragments(name)
    assert blocks
    for statement in (node for block in blocks for node in ast.parse(block).body):
        line = ast.unparse(statement).replace("step(batch)", "step.check()")
        exec(compile(line.replace("(...,", "(model, optimizer, batch,"), f"{name}.md", "exec"), names)


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHARDC_TUNING_DB", str(tmp_path / "tuning.db"))
    (tmp_path / "train.py").write_text(readme.files()["train.py"])
    LlamaConfig(**SIZES, num_hidden_layers=2, max_position_embeddings=64).to_json_file(
        tmp_path / "config.json"
    )
    lines = [line for block in indented(text_of(name)) for line in block.splitlines()]
    commands = [line.partition("  #")[0].strip() for line in lines if line.startswith("shardc ")]
    assert commands
    made = "shardc compile train.py --mesh data=2,tensor=2 --plan data*tensor -o out/"
    if not any(" compile " in command and "-o out/" in command for command in commands):
        assert main(shlex.split(made)[1:]) == 0
    for command in commands:
        for budget, less in BUDGETS.items():
            command = command.replace(budget, less)
        assert main(shlex.split(command)[1:]) == 0, command
