"""Weights from a Hugging Face folder and into one, tied and sharded ones too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import shardc
from shardc.diagnostics.api import BadWeights

IDS = torch.randint(0, 50, (4, 8), generator=torch.Generator().manual_seed(0))
BATCH = {"input_ids": IDS, "labels": IDS}


def new_model(seed: int = 0, tied: bool = True) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "vocab_size": 50}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, tie_word_embeddings=tied, use_cache=False))


def empty_model(tied: bool = True) -> LlamaForCausalLM:
    """Its parameters have shapes alone."""
    model = new_model(seed=9, tied=tied)
    for module in model.modules():
        for name, value in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(value.detach().to("meta")))
    model.tie_weights()
    return model


def compiled(model: nn.Module, **options: object):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return shardc.compile_step(model, optimizer, BATCH, mesh={"data": 1}, fuse=False, **options)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shard_bytes", [5_000_000_000, 4_000])
def test_what_is_exported_is_what_transformers_reads(tied: bool, shard_bytes: int, tmp_path: Path) -> None:
    model = new_model(tied=tied)
    step = compiled(model)
    step(BATCH)
    shardc.export_weights(step, model, tmp_path, shard_bytes=shard_bytes)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert ("model.safetensors" in files) == (shard_bytes > 10_000) and "config.json" in files
    if shard_bytes < 10_000:
        index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
        assert set(index["weight_map"].values()) == {f for f in files if f.endswith(".safetensors")}
    read = LlamaForCausalLM.from_pretrained(tmp_path)
    for name, value in model.state_dict().items():
        assert torch.equal(read.state_dict()[name], value), name
    # and back: a model without values
    again = compiled(empty_model(tied), state=shardc.read_weights(tmp_path))
    assert again(BATCH).item() == step(BATCH).item()


def test_a_folder_of_transformers_is_read(tmp_path: Path) -> None:
    model = new_model(seed=3)
    model.save_pretrained(tmp_path)
    expected = model(**BATCH).loss.item()
    found = compiled(empty_model(), state=shardc.read_weights(tmp_path))(BATCH).item()
    assert found == pytest.approx(expected, rel=1e-5)


def test_bad_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match="holds no weights in safetensors"):
        shardc.read_weights(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"garbled")
    with pytest.raises(BadWeights, match=r"model.safetensors is damaged"):
        shardc.read_weights(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    index = tmp_path / "model.safetensors.index.json"
    for text, said in (
        ("{", "cannot be read"),
        ('{"weight_map": 3}', "cannot be read"),
        ('{"weight_map": {"a": "model-1.safetensors"}}', "is listed in the index but missing"),
        ('{"weight_map": {"a": "../model.safetensors"}}', "is listed in the index but missing"),
    ):
        index.write_text(text)
        with pytest.raises(BadWeights, match=said):
            shardc.read_weights(tmp_path)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    model = new_model()
    model.save_pretrained(tmp_path)
    read = shardc.read_weights(tmp_path)
    with pytest.raises(BadWeights, match=r"has model.norm.weight of shape \[16\], not \[3\]"):
        read("model.norm.weight", (3,), torch.float32, (slice(0, 3),))
    assert read("nobody", (3,), torch.float32, (slice(0, 3),)) is None
    step = compiled(model)
    with pytest.raises(BadWeights, match="the step does not hold weight"):
        shardc.export_weights(step, nn.Linear(2, 2), tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadWeights, match="cannot be written"):
        shardc.export_weights(step, model, tmp_path / "file")
