"""Models of a config, without weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from planned import write_config

from shardc.diagnostics.planning import BadModelConfig, UnknownArchitecture
from shardc.planning.question import Question, Sizes, read_config, tokens_of


def test_a_model_of_a_config_has_no_weights(tmp_path: Path) -> None:
    question = read_config(write_config(tmp_path), Sizes(4, 32), torch.bfloat16)
    assert {p.device.type for p in question.model.parameters()} == {"meta"}
    assert {p.dtype for p in question.model.parameters()} == {torch.bfloat16}
    embeddings, attention, mlp, norms = 2 * 256 * 64, 64 * (64 + 2 * 32 + 64), 3 * 64 * 128, 5 * 64
    assert question.parameters == embeddings + 2 * (attention + mlp) + norms
    assert (question.tokens, question.samples, question.length, question.layers) == (128, 4, 32, 2)


def test_the_length_is_the_configs_own(tmp_path: Path) -> None:
    assert read_config(write_config(tmp_path), Sizes(1), torch.float32).length == 64


def test_a_model_without_filled_lists_is_one_stage() -> None:
    model = torch.nn.Sequential()
    assert Question("model", model, torch.optim.SGD([torch.ones(1)]), torch.ones(2), None, 2).layers == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "lama"}, "'llama'"),
        ({"model_type": None}, "no model_type"),
        ({"num_attention_heads": "many"}, "num_attention_heads"),
        ({"num_attention_heads": 0}, "ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_config_is_named(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, **changes)
    with pytest.raises((BadModelConfig, UnknownArchitecture), match=said) as raised:
        read_config(path, Sizes(1), torch.float32)
    assert raised.value.where == str(path)


def test_a_file_that_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("model: llama")
    with pytest.raises(BadModelConfig, match="cannot be read"):
        read_config(path, Sizes(1), torch.float32)


def test_tokens_of_a_batch_are_its_integers() -> None:
    assert tokens_of({"x": torch.ones(2, 3), "y": torch.ones(2, 5, dtype=torch.int64)}) == 10
    assert tokens_of(torch.ones(2, 3)) == 0
