"""What runs of the pages that people read: the README, guides, tutorials, concepts and the gallery.

A block is Python, commands or data, by the language of its fence. The tables below say which test runs the
blocks of each page; the tests take pages and blocks from here, and ``test_guide_blocks.py`` fails for a block
that none of them runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import readme
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

DOCS = readme.ROOT / "docs"
SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
}

SCRIPTS = {
    "README": "test_readme.py",
    "several_nodes": "test_several_nodes.py",
    "elastic": "test_elastic.py",
    **dict.fromkeys(
        (
            *("checkpoints", "data", "evaluation", "first_plan", "logs", "performance", "port_a_script"),
            *("from_accelerate", "from_deepspeed", "from_fsdp2", "from_megatron"),
            *("security", "symptoms", "trainers"),
        ),
        "test_guides.py",
    ),
}
"""Pages whose named files and commands run as they stand, and the module that runs them."""
COMMANDS = (
    *("activations", "cpu_kernels", "gallery", "gpu_kernels", "levels", "pipelines", "plan", "traces"),
    "tuning",
)
"""Pages whose commands run beside the README's ``train.py`` and a small ``config.json``."""


def _llama(layers: int) -> nn.Module:
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_hidden_layers=layers))


class _Words(nn.Module):
    """The smallest of language models, for searches and pipelines."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(64, 32), nn.Linear(32, 64)
        self.layers = nn.Sequential(*(nn.Linear(32, 32) for _ in range(layers)))

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.layers(self.embed(input_ids)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def _mixtral() -> nn.Module:
    sizes = {**SIZES, "num_local_experts": 20, "num_experts_per_tok": 2, "num_hidden_layers": 2}
    return MixtralForCausalLM(MixtralConfig(**sizes))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "activations": lambda: _llama(2),
    "checkpoints": lambda: _llama(1),
    "clusters": lambda: _llama(2),
    "cpu_kernels": lambda: nn.Linear(4, 2),
    "custom_operators": lambda: _llama(1),
    "data": lambda: _llama(1),
    "experts": _mixtral,
    "long_sequences": lambda: _llama(2),
    "pipelines": lambda: _Words(4),
    "plan": lambda: _Words(1),
    "torch_compile": lambda: nn.Linear(4, 2),
    "unequal": lambda: _llama(2),
}
"""Pages whose Python without a file name runs, and a model for it."""

BEFORE = {
    "checkpoints": "step = shardc.compile_step(..., mesh={'data': 1})\n"
    "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n",
    "cpu_kernels": "x = torch.randn(3, 4)\n",
}
"""What makes the names that the Python of a page takes for granted."""

SET_UP = {
    "git clone": "the tests run in a clone",
    "make setup": "the tests run in the environment that it makes",
    "pip install": "test_wheel.py installs a wheel of the tree",
    "make demo": "test/e2e/processes trains the same example on four processes",
    "make test": "this test is part of it",
}
NOT_RUN = {
    "08_plan_405b": {"shardc plan config.json": "the cell below it runs the same"},
    "first_plan": {
        **{start: SET_UP[start] for start in ("git clone", "make setup")},
        "shardc plan config.json -c h100-8 --batch 16 --plan auto": "155 s; the searches of `plan` run",
    },
    "from_deepspeed": {"# not run here: needs DeepSpeed": "needs DeepSpeed, which is not installed"},
    "from_megatron": {"torchrun --nproc-per-node 4 pretrain": "needs Megatron-LM, which is not installed"},
    "gpu_kernels": {
        "model = torch.compile(model": "needs a GPU",
        "import sys\n": "needs a GPU",
        "python test/gpu/prepare.py": "11 minutes of CPU time",
        "python test/gpu/run.py": "needs a GPU",
        "python test/bench/gpu/run.py": "needs a GPU",
        "python -m venv": "installs other versions of torch and Triton",
        "TRITON_INTERPRET=1": "needs those versions",
    },
    "install": SET_UP,
}
"""Blocks of Python and commands, by their first words, that no test runs, each with the reason."""

EXECUTED = "file_format: mystnb"
"""Line of a page whose code cells ``make docs`` and ``test_book.py`` run."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: the language of its fence, and its text."""

    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that a block of Python names in its first line, or nothing."""
        found = re.match(r"# (\w+\.py)\n", self.text)
        return found[1] if found and self.language == "python" else ""


def pages() -> dict[str, Path]:
    """Every page with blocks that are for readers to run, by name."""
    found = [readme.ROOT / "README.md", DOCS / "gallery.md"]
    for folder in ("guide", "tutorials", "concepts"):
        found += sorted((DOCS / folder).glob("*.md"))
    return {path.stem: path for path in found}


def text_of(name: str) -> str:
    return pages()[name].read_text()


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    found = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(language.split(" ")[0], body) for language, body in found]


def reason(name: str, text: str) -> str:
    """Why a block or a command of a page does not run, or nothing."""
    return next((why for start, why in NOT_RUN.get(name, {}).items() if text.startswith(start)), "")


def fragments(name: str) -> list[str]:
    """The blocks of Python of a page that name no file, and that run."""
    found = [block for block in blocks(text_of(name)) if block.language == "python" and not block.file]
    return [block.text for block in found if not reason(name, block.text)]


def scripts(name: str) -> tuple[dict[str, str], list[str]]:
    """The files of a page by name, and the commands that run; the page is one of ``SCRIPTS``."""
    assert name in SCRIPTS, f"{name} is not in guides.SCRIPTS"
    return readme.files(text_of(name)), commands(name)


def commands(name: str) -> list[str]:
    """The commands of a page that run."""
    return [command for command in readme.commands(text_of(name)) if not reason(name, command)]


@cache
def _all_commands() -> set[str]:
    return {_plain(command) for name in (*SCRIPTS, *COMMANDS) for command in commands(name)}


def runs(command: str) -> bool:
    """Whether a test runs a command, for this page or for another one that has it."""
    return _plain(command) in _all_commands()


def _plain(command: str) -> str:
    return command.removeprefix(".venv/bin/")


def clusters(name: str) -> dict[str, str]:
    """The descriptions of clusters in a page, by the file that has a cluster's name."""
    found = [block.text for block in blocks(text_of(name)) if block.language == "yaml"]
    named = [(re.search(r"^name: (\S+)$", text, re.MULTILINE), text) for text in found]
    return {f"{match[1]}.yaml": text for match, text in named if match}


def write_config(folder: Path) -> None:
    """Write the ``config.json`` of a Llama of one layer, whose largest batch on a GPU is soon found."""
    sizes = {"hidden_size": 16384, "vocab_size": 8192, "max_position_embeddings": 4096}
    LlamaConfig(**{**SIZES, **sizes, "num_hidden_layers": 1}).to_json_file(folder / "config.json")


def batch() -> dict[str, torch.Tensor]:
    """A batch for the language models above."""
    ids = torch.randint(64, (64, 24))
    return {"input_ids": ids, "labels": ids}
