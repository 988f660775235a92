"""Training step to plan: a model without weights, its optimizer and a batch, or a ``config.json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from shardc.diagnostics.planning import BadModelConfig, UnknownArchitecture
from shardc.frontend.step.batch import flatten_batch

if TYPE_CHECKING:
    from transformers import PretrainedConfig

META = torch.device("meta")
LENGTH = 8192
"""Default length of a sequence in tokens, if the config allows that many."""


@dataclass(frozen=True)
class Question:
    """Training step to plan.

    ``name``: name for reports. ``tokens``: tokens of the global batch; 0 if it has none. ``longest``: maximum
    number of tokens in a sample; 0 if unknown.
    """

    name: str
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batch: object
    loss: Callable[..., torch.Tensor] | None = None
    tokens: int = 0
    longest: int = 0

    @property
    def samples(self) -> int:
        """Samples of the global batch: the size of dim 0 of its first tensor."""
        found = (v.shape[0] for v in _tensors(self.batch) if v.dim())
        return next(found, 1)

    @property
    def length(self) -> int:
        """Tokens of a sample."""
        return self.tokens // self.samples

    @property
    def layers(self) -> int:
        """Length of the longest list of modules, which bounds the number of stages; at least 1."""
        lists = (m for m in self.model.modules() if isinstance(m, torch.nn.ModuleList | torch.nn.Sequential))
        return max([1, *(len(found) for found in lists)])

    @property
    def parameters(self) -> int:
        """Number of the model's parameters; tied weights count once."""
        return sum(p.numel() for p in self.model.parameters())


@dataclass(frozen=True)
class Sizes:
    """Sizes of the global batch. ``length``: tokens of a sequence (None: the config's, at most LENGTH)."""

    batch: int
    length: int | None = None


def read_config(path: Path, sizes: Sizes, dtype: torch.dtype) -> Question:
    """Return the language model of a ``config.json``, on the meta device, with AdamW.

    Raises UnknownArchitecture, and BadModelConfig for a file that is no config or lacks fields of the model.
    """
    config = _config(path)
    model = _model(path, config, dtype)
    longest = getattr(config.get_text_config(), "max_position_embeddings", None) or LENGTH
    length = min(longest, LENGTH) if sizes.length is None else sizes.length
    tokens = torch.empty(sizes.batch, length, dtype=torch.int64, device=META)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = {"input_ids": tokens, "labels": tokens}
    return Question(type(model).__name__, model, optimizer, batch, tokens=tokens.numel(), longest=longest)


def tokens_of(batch: object) -> int:
    """Return the number of tokens in a batch: the elements of its first integer tensor; 0 without one."""
    return next((v.numel() for v in _tensors(batch) if not v.is_floating_point()), 0)


def _tensors(batch: object) -> Iterator[torch.Tensor]:
    leaves = flatten_batch(batch)[0]
    return (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


def _config(path: Path) -> PretrainedConfig:
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig  # takes seconds

    try:
        held = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadModelConfig(problem=f"it cannot be read: {error}", where=str(path)) from error
    if not isinstance(held, dict) or "model_type" not in held:
        raise BadModelConfig(problem="it has no model_type", where=str(path))
    kind = held["model_type"]
    known = _kinds()
    if kind not in known:
        near = get_close_matches(str(kind), known, n=1)
        raise UnknownArchitecture(kind=kind, nearest=near[0] if near else "none", where=str(path))
    try:
        return AutoConfig.for_model(**held)
    except (TypeError, ValueError, AttributeError, ZeroDivisionError, StrictDataclassError) as error:
        raise BadModelConfig(problem=_first_line(error), where=str(path)) from error


def _kinds() -> list[str]:
    """Return the ``model_type`` of every language model that transformers can build."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def _model(path: Path, config: PretrainedConfig, dtype: torch.dtype) -> torch.nn.Module:
    from transformers import AutoModelForCausalLM

    try:
        with META:
            return AutoModelForCausalLM.from_config(config, dtype=dtype).train()
    except (TypeError, ValueError, AttributeError, KeyError, RuntimeError, ZeroDivisionError) as error:
        raise BadModelConfig(
            problem=f"no model can be made: {_first_line(error)}", where=str(path)
        ) from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
