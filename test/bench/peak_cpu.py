"""Planned peak of a step on a CPU, against live tensors while it runs and growth of resident memory.

    python test/bench/peak_cpu.py [kernels|ATen] [NAME ...]

Each program runs in a process of its own, on one device, with kernels and without. ``planned`` is the peak of
``compiler/memory.py`` over what the step is given and what kernels' workspaces keep between steps;
``measured`` are the bytes of PyTorch's allocator and of the pool in one step
(``runtime/report/live_bytes.py``), over those before it. ``resident`` is how far the process's resident
memory grows in a step, to the high-water mark, which Linux resets. Memory that is free before it is given
back: by ``malloc_trim``, and by the pool, whose segments stay mapped. ``MALLOC_MMAP_THRESHOLD_`` has large
blocks of ``malloc`` mapped one by one: else its heap has them, in which gaps stay. Goals: 3% of live bytes,
6% of resident memory. On stderr: the line of the plan's peak, and the call in which the measured one is.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from machine import heading, table
from torch import nn
from torch.nn import functional as F

import shardc
from shardc.compiler.memory import step_peak
from shardc.runtime.kernels import pool
from shardc.runtime.kernels.library import Library
from shardc.runtime.report.live_bytes import LiveBytes

Subject = tuple[nn.Module, object, Callable[..., torch.Tensor] | None]
PROGRAMS: dict[str, Callable[[], Subject]] = {}


def program(make: Callable[[], Subject]) -> Callable[[], Subject]:
    PROGRAMS[make.__name__] = make
    return make


def language(kind: str, batch: int, length: int, **sizes: Any) -> Subject:
    """A causal language model of transformers."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(use_cache=False, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    ids = torch.randint(config.vocab_size, (batch, length))
    return model, {"input_ids": ids, "labels": ids}, None


def llama(batch: int, length: int, **sizes: Any) -> Subject:
    shape = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6, "vocab_size": 8192}
    shape |= {"num_attention_heads": 6, "num_key_value_heads": 6, "max_position_embeddings": 2048}
    return language("Llama", batch, length, **(shape | sizes))


@program
def llama_wide_head() -> Subject:
    return llama(8, 256, vocab_size=32000, num_hidden_layers=2)


@program
def llama_deep() -> Subject:
    return llama(8, 256, num_hidden_layers=10)


@program
def llama_long() -> Subject:
    return llama(1, 2048)


@program
def llama_grouped_queries() -> Subject:
    return llama(8, 256, num_key_value_heads=2)


@program
def gpt2() -> Subject:
    sizes = {"n_embd": 384, "n_layer": 6, "n_head": 6, "vocab_size": 8192, "n_positions": 512}
    return language("GPT2", 8, 256, **sizes)


@program
def gpt_neox() -> Subject:
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "vocab_size": 8192}
    return language("GPTNeoX", 8, 256, intermediate_size=1536, **sizes)


@program
def opt() -> Subject:
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "vocab_size": 8192}
    return language("OPT", 8, 256, ffn_dim=1536, word_embed_proj_dim=384, **sizes)


@program
def qwen2() -> Subject:
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "vocab_size": 8192}
    return language("Qwen2", 8, 256, intermediate_size=1024, num_key_value_heads=2, **sizes)


@program
def bert() -> Subject:
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "vocab_size": 8192}
    ids = torch.randint(8192, (8, 256))
    return (
        BertForMaskedLM(BertConfig(intermediate_size=1536, **sizes)),
        {"input_ids": ids, "labels": ids},
        None,
    )


@program
def t5() -> Subject:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=384, d_ff=1024, num_layers=4, num_heads=6, vocab_size=8192, use_cache=False)
    config.decoder_start_token_id = 0
    ids = torch.randint(8192, (8, 192))
    return T5ForConditionalGeneration(config), {"input_ids": ids, "labels": ids}, None


@program
def vit() -> Subject:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "image_size": 128}
    model = ViTForImageClassification(ViTConfig(intermediate_size=1536, patch_size=8, num_labels=10, **sizes))
    return model, {"pixel_values": torch.randn(8, 3, 128, 128), "labels": torch.randint(10, (8,))}, None


@program
def mixtral() -> Subject:
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 8192}
    more = {"num_key_value_heads": 4, "num_local_experts": 4, "intermediate_size": 512}
    return language("Mixtral", 1, 128, **sizes, **more)


class Residual(nn.Module):
    """Two convolutions and a way past them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(x + self.norms[1](self.second(y)))


def regression(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Subject:
    return model, (x, y), lambda made, _: made


class Regression(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(self.body(x), y)


@program
def resnet() -> Subject:
    body = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), *(Residual(64) for _ in range(8)), nn.Conv2d(64, 3, 1)
    )
    return regression(Regression(body), torch.randn(8, 3, 64, 64), torch.randn(8, 3, 64, 64))


@program
def autoencoder() -> Subject:
    down = [nn.Conv2d(3, 64, 4, 2, 1), nn.SiLU(), nn.Conv2d(64, 128, 4, 2, 1), nn.SiLU()]
    up = [nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(64, 3, 4, 2, 1)]
    x = torch.randn(80, 3, 96, 96)
    return regression(Regression(nn.Sequential(*down, *up)), x, x)


def mlp(activation: nn.Module, width: int = 2048, depth: int = 4) -> nn.Sequential:
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), activation)]
    return nn.Sequential(*layers)


@program
def mlp_wide() -> Subject:
    return regression(Regression(mlp(nn.GELU())), torch.randn(5120, 2048), torch.randn(5120, 2048))


@program
def mlp_large_state() -> Subject:
    return regression(Regression(mlp(nn.ReLU(), 4096, 5)), torch.randn(64, 4096), torch.randn(64, 4096))


@program
def mlp_norms() -> Subject:
    body = nn.Sequential(
        *(m for _ in range(6) for m in (nn.LayerNorm(1024), nn.Linear(1024, 1024), nn.SiLU()))
    )
    return regression(Regression(body), torch.randn(4096, 1024), torch.randn(4096, 1024))


@program
def encoder() -> Subject:
    layer = nn.TransformerEncoderLayer(384, 6, 1536, dropout=0.1, batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    return regression(Regression(body), torch.randn(8, 256, 384), torch.randn(8, 256, 384))


class Embedded(nn.Module):
    """A large table of which few rows are read."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(60000, 512), nn.Linear(512, 1)

    def forward(self, ids: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(self.head(self.table(ids).mean(1)).squeeze(-1), y)


@program
def embedding_bag() -> Subject:
    return Embedded(), (torch.randint(60000, (512, 64)), torch.randn(512)), lambda made, _: made


class Convolved(nn.Module):
    """One-dimensional convolutions with gates."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(256, 512, 3, padding=1) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = x + F.glu(conv(x), dim=1)
        return x


@program
def gated_convolutions() -> Subject:
    return regression(Regression(Convolved()), torch.randn(32, 256, 512), torch.randn(32, 256, 512))


def measure(name: str, fuse: bool) -> dict[str, object]:
    """Planned and measured bytes of one program."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, batch, loss = PROGRAMS[name]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = shardc.compile_step(model, optimizer, batch, mesh={"data": 1}, plan="data", fuse=fuse, loss=loss)
    library = step.compiled.library
    peak = step_peak(step.compiled.program, None if library is None else Library(library), in_calls=True)
    running = step.running
    values = running.leaves(batch)
    live = LiveBytes()
    running.step_leaves(values)
    live.start()
    running.step_leaves(values)
    running.live_leaves(values, live)
    call = running.calls_leaves(values)[1].found[live.peak_call].text
    grown = resident_growth(lambda: running.step_leaves(values))
    planned = peak.size_bytes - peak.given_bytes - peak.kept_bytes
    return {
        "planned": planned,
        "measured": live.peak_bytes,
        "resident": grown,
        "line": peak.line,
        "call": call,
    }


def resident_growth(run: Callable[[], object]) -> int:
    """Bytes of resident memory that a call needs beyond those before it."""
    pool.trim()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{key}:"))


def main() -> None:
    if len(sys.argv) == 4 and sys.argv[1] == "--one":
        print(json.dumps(measure(sys.argv[2], sys.argv[3] == "kernels")))
        return
    rows: list[list[object]] = []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": str(1 << 17)}
    variants = [how for how in ("kernels", "ATen") if how in sys.argv] or ["kernels", "ATen"]
    for name in [name for name in sys.argv[1:] if name in PROGRAMS] or PROGRAMS:
        for how in variants:
            command = [sys.executable, __file__, "--one", name, how]
            ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if ran.returncode:
                print(name, how, ran.stderr[-600:], file=sys.stderr, flush=True)
                continue
            found = json.loads(ran.stdout.splitlines()[-1])
            planned, live, resident = (found[key] / 1e6 for key in ("planned", "measured", "resident"))
            rows.append(
                [f"{name}, {how}", planned, live, _off(planned, live), resident, _off(planned, resident)]
            )
            print(*rows[-1], found["line"][:120], found["call"], sep="\n  ", file=sys.stderr, flush=True)
    print(heading("Planned and measured peaks of a step, over the state before it"))
    print(table(["program", "planned MB", "live MB", "off", "resident MB", "off"], rows))
    for column, what in ((3, "live bytes"), (5, "resident memory")):
        errors = [abs(float(str(row[column]).rstrip("%"))) for row in rows]
        print(f"{what}: mean error {sum(errors) / len(errors):.1f}% max {max(errors):.1f}%")


def _off(planned: float, measured: float) -> str:
    return f"{100 * (planned / measured - 1):+.1f}%"


if __name__ == "__main__":
    main()
