"""Compilation in forked children of a process that has not loaded MLIR: results, failures, threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardc.dynamo import child, lowered
from shardc.passes.fuse.lower.table import lowered_targets
from shardc.workers.forked import can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="no fork here")

BEGIN = """
import os, sys, warnings
import torch
from torch import nn
from shardc.dynamo import child

done = []
inner = child.has_done
child.has_done = lambda work: done.append(inner(work)) or done[-1]
torch.manual_seed(0)
x = torch.randn(64, 96, requires_grad=True)
net = nn.Sequential(nn.Linear(96, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 8))
wide = nn.Sequential(nn.Linear(96, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 8)).double()
wide.load_state_dict(net.state_dict())

def check(called):
    (found,) = torch.autograd.grad(called(x).square().mean(), x)
    y = x.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(wide(y).square().mean(), y)
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-7)

def has_mlir():
    return "torch_mlir" in sys.modules
"""


def run(script: str, folder: Path, **variables: str) -> str:
    """Run a script after ``BEGIN`` in a process of its own; return what it printed."""
    environment = os.environ | {"SHARDC_CACHE_DIR": str(folder)} | variables
    command = [sys.executable, "-c", BEGIN + script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert not done.returncode, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("threads", [1, 2])
def test_children_compile_a_training_step(threads: int, tmp_path: Path) -> None:
    script = f"""
torch.set_num_threads({threads})
torch.mm(torch.randn(512, 512), torch.randn(512, 512))  # starts the pool, which children lack
check(torch.compile(net, backend="shardc"))
assert torch.get_num_threads() == {threads}
print(done, has_mlir())
"""
    assert run(script, tmp_path) == "[True] False"
    assert run(script, tmp_path) == "[] False"


def test_after_a_few_children_the_process_compiles_itself(tmp_path: Path) -> None:
    script = """
child.MOST = 2
for width in (8, 9, 10):
    given = torch.randn(16, width)
    net = nn.Sequential(nn.Linear(width, width), nn.GELU())
    torch.testing.assert_close(torch.compile(net, backend="shardc", dynamic=False)(given), net(given))
print(done, has_mlir())
"""
    assert run(script, tmp_path) == "[True, True] True"


def test_parts_that_the_child_cut_otherwise_are_compiled_like_any_graph(tmp_path: Path) -> None:
    script = """
from shardc.dynamo import backend, joint_partition
least, parent = joint_partition.partition, os.getpid()

def cut(joint, inputs, **given):
    if os.getpid() != parent:
        from functorch.compile import default_partition
        return default_partition(joint, inputs, **given)
    return least(joint, inputs, **given)

joint_partition.partition = cut
check(torch.compile(net, backend="shardc"))
print(done, has_mlir())
"""
    assert run(script, tmp_path) == "[True, True, True] False"


def test_a_crash_of_a_child_only_costs_time(tmp_path: Path) -> None:
    script = """
from shardc.dynamo import compile_graph
inside, parent = compile_graph._compile_and_end, os.getpid()

def crash(make):
    os.kill(os.getpid(), 9)

compile_graph._compile_and_end = crash
check(torch.compile(net, backend="shardc"))
print(done, has_mlir())
"""
    assert run(script, tmp_path) == "[False] True"


def test_a_system_without_another_process_only_costs_time(tmp_path: Path) -> None:
    script = """
def fork():
    raise BlockingIOError(11, "no process left")

os.fork = fork
check(torch.compile(net, backend="shardc"))
print(done, has_mlir())
"""
    assert run(script, tmp_path) == "[False] True"


def test_warnings_of_a_child_are_issued_once_by_this_process(tmp_path: Path) -> None:
    script = """
from shardc.dynamo import child

def fail(graph, *rest):
    import shardc.frontend.graph.aot_graph
    raise ZeroDivisionError("not imported today")

def broken(*arguments):
    from shardc.dynamo import compile_program
    compile_program.import_graph = fail
    return inside(*arguments)

from shardc.dynamo import compile_graph
inside = compile_graph._compile
compile_graph._compile = broken
with warnings.catch_warnings(record=True) as issued:
    warnings.simplefilter("always")
    check(torch.compile(net, backend="shardc"))
print(done, [w.category.__name__ for w in issued if "not imported today" in str(w.message)])
"""
    assert run(script, tmp_path) == "[False] ['ShardcFallbackWarning']"


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("no folder")
    script = """
warnings.simplefilter("ignore")
check(torch.compile(net, backend="shardc"))
print("right")
"""
    assert run(script, folder) == "right"


def test_sizes_that_change_compile_in_children_too(tmp_path: Path) -> None:
    script = """
called = torch.compile(nn.Softmax(-1), backend="shardc", dynamic=True)
for rows in (1, 7, 300):
    given = torch.randn(rows, 40)
    torch.testing.assert_close(called(given), given.softmax(-1))
print(done, has_mlir())
"""
    assert run(script, tmp_path).startswith("[True") and run(script, tmp_path).endswith("False")


def test_this_process_has_mlir_and_asks_no_child() -> None:
    assert not child.is_of_use()
    assert lowered.lowered() == lowered_targets()


def test_names_on_disk_are_those_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    assert lowered._kept() is None
    lowered.keep_lowered()
    assert lowered._kept() == lowered_targets()
    (file,) = tmp_path.glob("targets-*")
    file.write_bytes(file.read_bytes()[:-3])
    assert lowered._kept() is None
