"""Annotations by ``"tensor"`` on unprepared models, their propagation, and their communication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from shardc.passes.manager.program import read_program
from shardc.passes.plan.column_row import Cut, column_row_cuts

MESH = {"tensor": 2}
COLUMNS, ROWS = "[tensor, *]", "[*, tensor]"
"""Layouts of a linear layer's weight, which is stored transposed."""


class Block(nn.Module):
    """A transformer layer with norms before its parts: attention with a weight each for q, k, v and o, and an
    MLP.
    """

    def __init__(self, hidden: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden) for _ in range(4))
        self.up, self.down = nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    def attention(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        q, k, v = (p(x).view(batch, length, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(mixed.transpose(1, 2).reshape(batch, length, hidden))


class Blocks(nn.Module):
    """An embedding and two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        self.layers = nn.ModuleList([Block(), Block()])

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return x


def _loss(output: Tensor, _: object) -> Tensor:
    return output.square().mean()


def _ids() -> Tensor:
    return torch.zeros(4, 8, dtype=torch.int64)


def test_chain_of_two(compile_plan: Callable) -> None:
    """Two layers: the first by columns with its bias, the second by rows. No gradient of the input is asked
    for.
    """
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    program = compile_plan(model, {"input": torch.zeros(8, 16)}, "tensor", MESH, loss=_loss)
    assert program.annotated() == {"0.weight": (("tensor",), ())}
    assert program.layouts() == {"0.weight": COLUMNS, "0.bias": "[tensor]", "2.weight": ROWS, "2.bias": "[*]"}
    assert program.counts() == Counter({("forward", "all_reduce", (8, 16), ("tensor",)): 1})


def test_two_chains(compile_plan: Callable) -> None:
    """Four layers are two chains: a reduction each forward, and one backward, into the first."""
    layers = [
        nn.Linear(16, 32),
        nn.ReLU(),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, 32),
        nn.ReLU(),
        nn.Linear(32, 16),
    ]
    program = compile_plan(nn.Sequential(*layers), {"input": torch.zeros(8, 16)}, "tensor", MESH, loss=_loss)
    assert sorted(program.annotated()) == ["0.weight", "4.weight"]
    reduced = ("all_reduce", (8, 16), ("tensor",))
    assert program.counts() == Counter({("forward", *reduced): 2, ("backward", *reduced): 1})


def test_odd_layer_is_left_whole(mlp: Callable) -> None:
    """Of three layers the last has nobody to hand its columns to."""
    program = mlp("tensor", MESH)
    assert program.layouts() == {"0.weight": COLUMNS, "2.weight": ROWS, "4.weight": "[*, *]"}


@pytest.mark.slow
def test_attention_and_mlp_blocks(compile_plan: Callable) -> None:
    """q heads a chain that ends in o; k and v follow through the heads. Two reductions a layer each way."""
    program = compile_plan(Blocks(), {"ids": _ids()}, "tensor", MESH, loss=_loss)
    layers = [f"layers.{i}.{name}.weight" for i in (0, 1) for name in ("q", "up")]
    assert sorted(program.annotated()) == layers
    layouts = program.layouts()
    for name, layout in {
        "q": COLUMNS,
        "k": COLUMNS,
        "v": COLUMNS,
        "o": ROWS,
        "up": COLUMNS,
        "down": ROWS,
    }.items():
        assert layouts[f"layers.1.{name}.weight"] == layout
    reduced = ("all_reduce", (4, 8, 32), ("tensor",))
    assert program.counts() == Counter({("forward", *reduced): 4, ("backward", *reduced): 4})


@pytest.mark.slow
def test_llama_without_its_own_plan(llama: Callable) -> None:
    """Found in the program: what the model's ``tp_plan`` says."""
    found, own = llama(1, "tensor", MESH, own_plan=False), llama(1, "tensor", MESH)
    assert sorted(found.annotated()) == [
        "lm_head.weight",
        "model.embed_tokens.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.self_attn.q_proj.weight",
    ]
    layers = {name: layout for name, layout in own.layouts().items() if ".layers." in name}
    assert {name: layout for name, layout in found.layouts().items() if ".layers." in name} == layers
    assert found.counts() == own.counts()


def gpt2(compile_plan: Callable, heads: int, hidden: int = 32) -> Any:
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(
        n_embd=hidden, n_layer=2, n_head=heads, vocab_size=64, n_positions=16, **ends, **dropout
    )
    return compile_plan(GPT2LMHeadModel(config), {"input_ids": _ids(), "labels": _ids()}, "tensor", MESH)


@pytest.mark.slow
def test_gpt2_cuts_its_fused_weights(compile_plan: Callable) -> None:
    """GPT-2 has no ``tp_plan``, and stores weights untransposed. Its fused q, k, v are stored in blocks of
    heads of all three: two reductions a layer each way, as of a model with a weight for each.
    """
    program = gpt2(compile_plan, 4)
    names = [f"transformer.h.{i}.{name}.weight" for i in (0, 1) for name in ("attn.c_attn", "mlp.c_fc")]
    layers = dict.fromkeys(names, ((), ("tensor",)))
    assert program.annotated() == {**layers, "transformer.wte.weight": (("tensor",), ())}
    layouts = program.layouts()
    assert layouts["transformer.h.1.attn.c_attn.bias"] == "[tensor]"
    assert (
        layouts["transformer.h.1.attn.c_proj.weight"]
        == layouts["transformer.h.1.mlp.c_proj.weight"]
        == COLUMNS
    )
    reduced = ("all_reduce", (4, 8, 32), ("tensor",))
    assert _of_rows(program, reduced) == {"forward": 5, "backward": 5}  # one each way for the words
    said = [r.render() for r in program.compiled.remarks]
    assert (
        "[Interleaved] dim 1 of transformer.h.0.attn.c_attn.weight holds 3 parts (32, 32, 32); "
        "each part is sharded over 2 devices" in said
    )


@pytest.mark.slow
def test_gpt2_with_heads_that_do_not_divide_cuts_its_mlp(compile_plan: Callable) -> None:
    program = gpt2(compile_plan, 3, 24)
    layers = {f"transformer.h.{i}.mlp.c_fc.weight": ((), ("tensor",)) for i in (0, 1)}
    assert program.annotated() == {**layers, "transformer.wte.weight": (("tensor",), ())}
    reduced = ("all_reduce", (4, 8, 24), ("tensor",))
    assert _of_rows(program, reduced) == {"forward": 3, "backward": 3}


def _of_rows(program: Any, reduced: tuple[object, ...]) -> dict[str, int]:
    """Reductions of rows by phase, without those of a loss, of a number a row."""
    return {phase: count for (phase, *rest), count in program.counts().items() if tuple(rest) == reduced}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("columns", [10, 12, 13])
def test_columns_need_not_divide(compile_plan: Callable, columns: int) -> None:
    """10 and 13 columns over 4 devices are cut as 12 are, and send the same: one all-reduce of the rows'
    results.
    """
    model = nn.Sequential(nn.Linear(16, columns), nn.ReLU(), nn.Linear(columns, 16))
    program = compile_plan(model, {"input": torch.zeros(8, 16)}, "tensor", {"tensor": 4}, loss=_loss)
    assert program.annotated() == {"0.weight": (("tensor",), ())}
    assert program.counts() == Counter({("forward", "all_reduce", (8, 16), ("tensor",)): 1})


def test_fewer_columns_than_devices_stay_whole_and_it_is_said(compile_plan: Callable) -> None:
    model = nn.Sequential(nn.Linear(16, 3), nn.ReLU(), nn.Linear(3, 16))
    program = compile_plan(model, {"input": torch.zeros(8, 16)}, "tensor", {"tensor": 4}, loss=_loss)
    assert not program.annotated()
    assert not program.transfers
    said = [r.render() for r in program.compiled.remarks]
    assert any(
        "0.weight [3, 16] stays whole: dim 0 has too few elements for 4 devices along tensor" in text
        for text in said
    ), said


def test_dims_of_a_models_own_plan(compile_plan: Callable) -> None:
    """Module patterns: colwise cuts a weight's dim 0, rowwise its dim 1; the first pattern counts; others are
    left.
    """
    model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 16))
    program = compile_plan(model, {"input": torch.zeros(8, 16)}, "data", {"data": 2}, loss=_loss)
    level_1 = read_program(program.compiled.global_module)
    assert level_1 is not None
    assert column_row_cuts(level_1, {"0": "colwise", "1": "rowwise"}) == {
        "0.weight": Cut(0),
        "1.weight": Cut(1),
    }
    everywhere = {f"{i}.weight": Cut(0) for i in range(3)}
    assert column_row_cuts(level_1, {"*": "colwise_gather_output", "1": "rowwise"}) == everywhere
    assert column_row_cuts(level_1, {"2": "replicate"}) == {}
