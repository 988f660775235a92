"""Small programs as tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch_mlir import ir

from shardc.backends.tuning.task import Task
from shardc.frontend.graph.aot_graph import import_graph
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.passes.manager.pass_pipelines import build, run
from shardc.tuner.extract_tasks import tasks_of


def fused(function: Callable[..., Sequence[torch.Tensor]], *inputs: torch.Tensor) -> ir.Module:
    """A function's module of level 4, matmuls in kernels."""
    module = unfused(function, *inputs)
    fuse_module(module, matmuls="generated")
    return module


def unfused(function: Callable[..., Sequence[torch.Tensor]], *inputs: torch.Tensor) -> ir.Module:
    """The module that it is made of."""
    imported = import_graph(make_fx(function, tracing_mode="fake")(*inputs), "forward")
    run(imported.module, build("torch-share"), verify_each=False)
    return imported.module


def task_of(function: Callable[..., Sequence[torch.Tensor]], *inputs: torch.Tensor) -> Task:
    """Its only kernel, for one thread."""
    ((task, _),) = tasks_of(fused(function, *inputs), threads=1)
    return task


def matmul_gelu(size: int = 48) -> Task:
    return task_of(
        lambda a, b: [torch.nn.functional.gelu(a @ b)], torch.randn(size, size), torch.randn(size, size)
    )


def rows(size: int = 32) -> Task:
    """A softmax of rows."""
    return task_of(lambda x: [torch.softmax(x * 2, -1)], torch.randn(size, 64))
