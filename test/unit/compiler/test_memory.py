"""The planned peaks of graphs and of steps against what torch's allocator counts while they run."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import shardc
from shardc.backends.torch.memory import dry_run
from shardc.compiler.memory import step_peak
from shardc.runtime.kernels import kernel_call, pool
from shardc.runtime.kernels.library import Library

WITHIN = 0.03
"""What libraries take inside of their calls."""


class Block(nn.Module):
    """Norm, attention and a gated layer, with residuals."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, hidden = x.shape
        q, k, v = (p.view(batch, length, 4, -1).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, hidden))
        h = self.up(x)
        return x + self.down(h * torch.tanh(h))


def allocated(prof: profile) -> list[tuple[int, int]]:
    """(bytes, bytes that are taken then since the start) of each allocation, in order of time."""
    found: list[tuple[int, int, int]] = []
    events = list(prof.profiler.kineto_results.experimental_event_tree())
    while events:
        event = events.pop()
        events += event.children
        if event.tag == _EventType.Allocation:
            found.append(
                (event.start_time_ns, event.extra_fields.alloc_size, event.extra_fields.total_allocated)
            )
    found.sort()
    _, first, before = found[0]
    return [(size, total - before + first) for _, size, total in found]


@pytest.fixture
def unpooled(monkeypatch):
    """Every tensor comes from torch's allocator, which the profiler sees."""
    monkeypatch.setattr(pool, "POOLED_BYTES", 1 << 62)


@pytest.fixture
def unkept(monkeypatch):
    """A workspace is there during its call alone: one that a thread keeps was taken before what the profiler
    sees.
    """
    for module in (kernel_call, dry_run):
        monkeypatch.setattr(module, "KEPT_WORKSPACE_BYTES", 0)


@pytest.mark.slow
def test_the_planned_peak_is_what_is_allocated(unpooled, unkept):
    model = nn.Sequential(Block(128), Block(128))
    x = torch.randn(4, 96, 128)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        return model(x).square().sum()

    planned = dict(shardc.explain_memory(loss_of, x).graphs)
    torch._dynamo.reset()
    compiled = torch.compile(loss_of, backend="shardc", dynamic=False)
    for _ in range(2):
        compiled(x).backward()
        model.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        loss = compiled(x)
        marker = torch.empty(12345, dtype=torch.uint8)
        loss.backward()
    del marker
    events = allocated(prof)
    middle = next(number for number, (size, _) in enumerate(events) if size == 12345)
    forward, backward = (max(total for _, total in part) for part in (events[:middle], events[middle:]))
    lasting = sum(p.nbytes for p in model.parameters())
    assert forward == pytest.approx(planned["forward"].size_bytes - lasting - x.nbytes, rel=WITHIN)
    saved = events[middle - 1][1]
    assert backward == pytest.approx(
        saved + planned["backward"].size_bytes - planned["backward"].given_bytes, rel=WITHIN
    )
    assert backward > 1.02 * saved


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rows", [512, 12288], ids=["kept between calls", "too large to keep"])
def test_workspaces_of_kernels_are_planned(unpooled, rows):
    """The sums and the packed operands of a matmul in a kernel."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w).sum(-1)

    x, w = torch.randn(rows, 96), torch.randn(96, 512)
    options = {"matmuls": "generated"}
    ((_, peak),) = shardc.explain_memory(f, x, w, options=options).graphs
    result = 4 * rows
    assert (peak.size_bytes - peak.given_bytes - result > kernel_call.KEPT_WORKSPACE_BYTES) == (rows > 512)
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="shardc", dynamic=False, options=options)
    compiled(x, w)
    vars(kernel_call._of_thread).clear()  # what earlier calls kept
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        compiled(x, w)
    assert max(total for _, total in allocated(prof)) == pytest.approx(
        peak.size_bytes - peak.given_bytes, rel=WITHIN
    )


def test_a_peak_is_named_by_call_and_line():
    def f(x: torch.Tensor) -> torch.Tensor:
        wide = (x @ torch.ones(64, 16 * 64)).sort().values @ torch.ones(16 * 64, 64)
        return wide.relu()

    explained = shardc.explain_memory(f, torch.randn(256, 64))
    ((phase, peak),) = explained.graphs
    assert phase == "forward" and peak.where.startswith("test_memory.py:")
    assert peak.size_bytes >= 256 * 16 * 64 * 4 > peak.given_bytes
    assert "at most" in str(explained) and "test_memory.py" in str(explained)


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(128), Block(128))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (self.blocks(x) - y).square().mean()


def compiled_step(mesh: dict[str, int], plan: str, micro_batches: int = 1):
    model = Loss()
    batch = {"x": torch.randn(8, 96, 128), "y": torch.randn(8, 96, 128)}
    settings = {"mesh": mesh, "plan": plan, "micro_batches": micro_batches, "loss": lambda out, batch: out}
    return shardc.compile_step(model, torch.optim.AdamW(model.parameters()), batch, **settings), batch


@pytest.mark.slow
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_the_planned_peak_of_a_step_is_what_is_allocated(unpooled, unkept, micro_batches):
    step, batch = compiled_step({"data": 1}, "data", micro_batches)
    peak = step_peak(step.compiled.program, Library(step.compiled.library))
    for _ in range(2):
        step(batch)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        step(batch)
    grown = max(total for _, total in allocated(prof))
    assert grown == pytest.approx(peak.size_bytes - peak.given_bytes, rel=WITHIN)
    assert grown > peak.given_bytes


class Checkpointed(nn.Module):
    """Blocks that are computed again in the backward."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(64) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x.square().mean()


def checkpointed_step(kind: type[torch.optim.Optimizer], blocks: int, **how: object):
    torch.manual_seed(0)
    model = Checkpointed(blocks)
    batch = torch.randn(32, 64, 64)
    optimizer = kind(model.parameters(), lr=1e-3)  # type: ignore[call-arg]
    return shardc.compile_step(model, optimizer, batch, mesh={"data": 1}, plan="data", **how), batch


HOW = ({"matmuls": "extern"}, {"fuse": False})
"""With kernels, whose products are calls: those of kernels pack operands in memory of the step's, where
libraries take memory that nobody plans.
"""


@pytest.mark.slow
def test_kernels_keep_what_checkpointing_saves():
    peaks = [step_peak(checkpointed_step(torch.optim.SGD, 4, **how)[0].compiled.program) for how in HOW]
    assert peaks[0].size_bytes <= 1.05 * peaks[1].size_bytes


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_kernels_keep_what_checkpointing_saves_when_they_run(unpooled, unkept, kind):
    grown = []
    for how in HOW:
        step, batch = checkpointed_step(kind, 16, **how)
        for _ in range(2):
            step(batch)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
            step(batch)
        grown.append(max(total for _, total in allocated(prof)))
    assert grown[0] <= 1.05 * grown[1]


@pytest.mark.slow
def test_a_plan_says_the_peak_of_its_step():
    whole, _ = compiled_step({"data": 2}, "data")
    cut, _ = compiled_step({"data": 2, "tensor": 2}, "zero3*tensor")
    text = str(cut.plan)
    assert f"a step takes {cut.peak}" in text and "test_memory.py:" in cut.peak
    assert step_peak(cut.compiled.program).size_bytes < step_peak(whole.compiled.program).size_bytes


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(512, 64), nn.Linear(64, 512)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.head(self.words(x)).flatten(0, 1), y.flatten())


def test_the_peak_of_kernels_that_check_their_indices():
    model = Words()
    batch = {"x": torch.randint(512, (8, 96)), "y": torch.randint(512, (8, 96))}
    settings = {"mesh": {"data": 2}, "plan": "data", "loss": lambda out, batch: out}
    step = shardc.compile_step(model, torch.optim.AdamW(model.parameters()), batch, **settings)
    assert '"kern.scatter_add"' in str(step.compiled.program)
    assert f"a step takes {step.peak}" in str(step.plan)


def test_an_activation_that_only_a_norm_reads_is_computed_again():
    """As in BERT's head: saved are the input, what the activation reads, and what the norm gives to the
    matmul.
    """
    model = nn.Sequential(nn.Linear(48, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 48))
    saved: dict[int, tuple[int, ...]] = {}
    x = torch.randn(64, 48)

    def pack(t: torch.Tensor) -> torch.Tensor:
        saved[t.untyped_storage().data_ptr()] = tuple(t.shape)
        return t

    compiled = torch.compile(model, backend="shardc", dynamic=False)
    compiled(x)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = compiled(x)
    assert list(saved.values()).count((64, 48)) == 3
    y.square().sum().backward()
    got = [p.grad for p in model.parameters()]
    wanted = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    torch.testing.assert_close(got, list(wanted), rtol=1e-4, atol=1e-4)
