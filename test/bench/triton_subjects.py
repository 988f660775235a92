"""The programs whose Triton kernels are swept: training steps of the test models, two layers each, and
functions of one kernel family at sizes that fill a GPU.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch_mlir import ir

sys.path.append(str(Path(__file__).parent))

import whole_models

from shardc.dialects.context import new_context
from shardc.frontend.graph.aot_graph import import_graph
from shardc.frontend.step.capture import capture_step
from shardc.step.shard import compile_capture
from shardc.step.sharding.mesh import make_mesh

if TYPE_CHECKING:
    from gpu.models import Size


def _models_of_gpu_tests() -> Any:
    """``test/gpu/models.py``: other tests have a module of that name."""
    spec = importlib.util.spec_from_file_location(
        "gpu_models", Path(__file__).parents[1] / "gpu" / "models.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_models"] = module
    spec.loader.exec_module(module)
    return module


models = _models_of_gpu_tests()
aten = torch.ops.aten
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
ROWS, HIDDEN, CLASSES = 8192, 4096, 32000
DROPOUT = 0.1
SIZES = {
    "even": {
        "llama": models.Size(2048, 5632, 2, 32, 8, 32000, 4, 2048),
        "gpt2": models.Size(1024, 4096, 2, 16, 16, 50304, 8, 1024),
        "bert": models.Size(1024, 4096, 2, 16, 16, 30528, 32, 512),
        "vit": models.Size(1024, 4096, 2, 16, 16, 1000, 64, 192),
        "t5": models.Size(512, 2048, 2, 8, 8, 32128, 8, 512),
        "mixtral": models.Size(1024, 3584, 2, 16, 8, 32000, 2, 1024),
    },
    "odd": dict.fromkeys(
        ("llama", "gpt2", "bert", "vit", "t5", "mixtral"), models.Size(324, 777, 2, 6, 2, 5003, 3, 257)
    ),
    "tiny": dict.fromkeys(("bert", "vit", "t5"), models.Size(24, 40, 1, 3, 3, 53, 2, 9)),
}
"""*even*: all that kernels read is aligned; *odd*: rows of matrices begin at any 4 or 8 bytes, and every mask
is needed; *tiny*: fit for an interpreter.
"""
CONVNETS = {"even": (64, 32, 224), "odd": (27, 5, 57)}
"""Channels, batch, image."""


@dataclass(frozen=True)
class Subject:
    """A program: ``make`` gives it before fusion. ``even``: all of its sizes are multiples of 16 bytes.
    ``lone``: ops that would be kernels of their own are no calls.
    """

    name: str
    make: Callable[[], ir.Module]
    even: bool
    lone: bool = False


def subjects() -> Iterator[Subject]:
    for dtype, size in (("bf16", "even"), ("f32", "odd"), ("bf16", "odd"), ("f32", "even")):
        for kind in (*SIZES[size], "convnet"):
            make = partial(step, kind, DTYPES[dtype], size)
            yield Subject(f"{kind} {dtype} {size}", make, size == "even")
    yield Subject("functions", functions, True, True)


def step(kind: str, dtype: torch.dtype, size: str) -> ir.Module:
    """The program of a training step: forward, backward, and AdamW."""
    torch.manual_seed(0)
    with torch.device("meta"):
        model, batch = training(kind, size)
    model = model.to(dtype).train()
    batch = {n: v.to(dtype) if v.is_floating_point() else v for n, v in batch.items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    capture = capture_step(model, optimizer, batch, context=new_context())
    return compile_capture(capture, make_mesh({"data": 1}, 1), "data").rank_module


def training(kind: str, size: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """A model and its batch, on the current device."""
    if kind == "convnet":
        channels, count, edge = CONVNETS[size]
        labels = torch.zeros(count, dtype=torch.int64)
        return _Classifier(channels), {"images": torch.zeros(count, 3, edge, edge), "labels": labels}
    s = SIZES[size][kind]
    ids = torch.zeros(s.batch, s.length, dtype=torch.int64)
    if kind == "t5":
        return _t5(s), {"input_ids": ids, "labels": ids}
    if kind == "mixtral":
        return _mixtral(s), {"input_ids": ids, "labels": ids}
    if kind == "vit":
        given = {"patches": torch.zeros(s.batch, s.length, 3 * 16 * 16), "labels": ids[:, 0]}
        return models.build(kind, s, DROPOUT), given
    return models.build(kind, s, DROPOUT), {"ids": ids}


class _Classifier(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.net = whole_models.convnet({"channels": channels})

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.net(images).float(), labels)


def _t5(s: Size) -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=s.hidden,
        d_kv=s.hidden // s.heads,
        d_ff=s.inner,
        num_layers=s.layers,
        num_heads=s.heads,
        vocab_size=s.words,
        dropout_rate=DROPOUT,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(config)


def _mixtral(s: Size) -> nn.Module:
    """Eight experts, whose products are ``torch._grouped_mm``."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        hidden_size=s.hidden,
        intermediate_size=s.inner,
        num_hidden_layers=s.layers,
        num_attention_heads=s.heads,
        num_key_value_heads=s.kv_heads,
        vocab_size=s.words,
        num_local_experts=8,
        num_experts_per_tok=2,
        output_router_logits=True,
        max_position_embeddings=s.length,
    )
    model = MixtralForCausalLM(config)
    model.set_experts_implementation("grouped_mm")
    return model


def _tensor(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="meta")


def _adamw(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> list[Tensor]:
    m, v = m.lerp(g, 0.1), v * 0.999 + g * g * 0.001
    return [p - 0.001 * m / (v.sqrt() + 1e-8), m, v]


def _rms_norm(x: Tensor, w: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def _norm_backward(g: Tensor, x: Tensor, mean: Tensor, scale: Tensor, w: Tensor) -> Any:
    return aten.native_layer_norm_backward(g, x, [HIDDEN], mean, scale, w, w, [True] * 3)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "bias + gelu": (lambda x, b: F.gelu(x + b), (_tensor(ROWS, HIDDEN), _tensor(HIDDEN))),
    "swiglu": (lambda x, y: F.silu(x) * y, (_tensor(ROWS, HIDDEN), _tensor(ROWS, HIDDEN))),
    "softmax": (lambda x: torch.softmax(x, -1), (_tensor(ROWS, HIDDEN),)),
    "softmax, long rows": (lambda x: torch.softmax(x, -1), (_tensor(ROWS, CLASSES),)),
    "rms norm": (_rms_norm, (_tensor(ROWS, HIDDEN), _tensor(HIDDEN))),
    "layer norm": (
        lambda x, w, b: F.layer_norm(x, [HIDDEN], w, b),
        (_tensor(ROWS, HIDDEN), _tensor(HIDDEN), _tensor(HIDDEN)),
    ),
    "layer norm backward": (
        _norm_backward,
        (
            _tensor(ROWS, HIDDEN),
            _tensor(ROWS, HIDDEN),
            _tensor(ROWS, 1).float(),
            _tensor(ROWS, 1).float(),
            _tensor(HIDDEN),
        ),
    ),
    "sum over rows": (lambda x: x.sum(0), (_tensor(ROWS, HIDDEN),)),
    "cross entropy": (
        lambda x, t: F.cross_entropy(x.float(), t),
        (_tensor(ROWS, CLASSES), torch.empty(ROWS, dtype=torch.int64, device="meta")),
    ),
    "embedding backward": (
        lambda g, i: aten.embedding_dense_backward(g, i, CLASSES, -1, False),
        (_tensor(ROWS, HIDDEN), torch.empty(ROWS, dtype=torch.int64, device="meta")),
    ),
    "AdamW": (_adamw, tuple(_tensor(HIDDEN, HIDDEN).float() for _ in range(4))),
}


def functions() -> ir.Module:
    """All of them, one behind the other, as one program."""
    given = [t for _, tensors in FUNCTIONS.values() for t in tensors]

    def flat(*tensors: Tensor) -> list[Tensor]:
        rest, found = list(tensors), list[Tensor]()
        for function, own in FUNCTIONS.values():
            made = function(*(rest.pop(0) for _ in own))
            found += [made] if isinstance(made, Tensor) else list(made)
        return found

    return import_graph(make_fx(flat, tracing_mode="fake")(*given), "forward").module
