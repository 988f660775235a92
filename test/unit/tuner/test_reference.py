"""Inputs and references for kernels of every kind: compiled kernels are correct on them."""

from __future__ import annotations

import pytest
import torch
from kernel_tasks import fused
from torch.nn import functional as F
from torch_mlir import ir

from shardc.backends.tuning.inputs import index_bounds, make_inputs, sum_lengths
from shardc.backends.tuning.kernel_text import configured
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.reference import bound_of, make_reference
from shardc.backends.tuning.task import Task
from shardc.tuner.extract_tasks import kernels_of, tasks_of
from shardc.tuner.measurer import Measurer
from shardc.tuner.space.of_task import space_of

KINDS = {
    "rows": (lambda x, w: [F.layer_norm(x * 2, (64,), w)], torch.randn(33, 64), torch.randn(64)),
    "columns": (lambda x: [(x * 2).sum(0)], torch.randn(700, 96)),
    "bf16 matmul": (
        lambda a, b: [F.relu(a @ b)],
        torch.randn(64, 64).bfloat16(),
        torch.randn(64, 64).bfloat16(),
    ),
    "f16 matmul": (lambda a, b: [F.gelu(a @ b)], torch.randn(64, 96).half(), torch.randn(96, 64).half()),
    "f16 rows": (lambda x: [F.softmax(x * 2, -1)], torch.randn(33, 64).half()),
    "roots": (lambda x: [(x.sqrt() + x.log()) * 2], torch.randn(48, 48)),
    "gather": (lambda w, i: [F.embedding(i, w) * 2 + 1], torch.randn(50, 32), torch.randint(50, (16,))),
    "cross entropy": (
        lambda x, y: [F.cross_entropy(x * 2, y)],
        torch.randn(24, 100),
        torch.randint(100, (24,)),
    ),
    "mask": (
        lambda x, k: [torch.where(k, x * 2, -1e9).softmax(-1)],
        torch.randn(16, 40),
        torch.rand(16, 40) < 0.5,
    ),
    "scatter": (
        lambda g, i: [torch.ops.aten.embedding_dense_backward(g, i, 50, -1, False)],
        torch.randn(4, 64, 32),
        torch.randint(50, (4, 64)),
    ),
    "attention": (
        lambda q, k, v: list(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)),
        *torch.randn(3, 2, 4, 64, 32),
    ),
    "whole numbers": (lambda i: [(i * 3 + 1).sum(-1)], torch.randint(9, (30, 40))),
}


@pytest.fixture(scope="module")
def measurer():
    with Measurer() as opened:
        yield opened


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_compiled_is_right_on_them(kind: str, measurer: Measurer):
    function, *inputs = KINDS[kind]
    tasks = tasks_of(fused(function, *inputs), threads=1)
    assert tasks
    for task, _ in tasks:
        point = space_of(task).ranked(1)[0]
        (trial,) = measurer.measure(task, [point])
        assert trial.ok, trial.said


def test_what_is_written_in_place_is_right_each_time(measurer: Measurer):
    ((task, _),) = tasks_of(fused(lambda x, y: [(x * 2 + y).sqrt()], *torch.rand(2, 64, 64)), threads=1)
    module = configured(task, None)
    function = module.body.operations[0].operation
    function.attributes["kern.in_place"] = ir.DenseI64ArrayAttr.get([0, 0], module.context)
    task = Task(module.operation.get_asm(enable_debug_info=False), task.target, 1, "in place")
    trials = list(
        measurer.measure(task, [space_of(task).ranked(1)[0], Point.of("t", {"work_per_thread": 1 << 16})])
    )
    assert all(t.ok for t in trials), trials


@pytest.mark.slow
def test_two_threads(measurer: Measurer):
    ((task, _),) = tasks_of(fused(lambda a, b: [F.gelu(a @ b)], *torch.randn(2, 256, 256)), threads=2)
    (trial,) = measurer.measure(task, [space_of(task).ranked(1)[0]])
    assert trial.ok, trial.said


def reference_of(kind: str):
    function, *inputs = KINDS[kind]
    ((task, _),) = tasks_of(fused(function, *inputs), threads=1)
    module = configured(task, None)
    return module, make_reference(module.body.operations[0].operation)


def test_indices_are_in_range():
    module, reference = reference_of("gather")
    (bound,) = index_bounds(module.body.operations[0].operation).values()
    assert bound == 50
    (index,) = [v for v in reference.inputs if v.dtype == torch.int64]
    assert index.min() >= 0 and index.max() < 50 and len(index.unique()) > 5


def test_labels_are_in_range():
    function, *inputs = KINDS["cross entropy"]
    for task, _ in tasks_of(fused(function, *inputs), threads=1):
        module = configured(task, None)
        op = module.body.operations[0].operation
        for number, value in enumerate(make_inputs(op, "normal", 0)):
            if value.dtype == torch.int64:
                assert index_bounds(op)[number] == 100


def test_what_takes_roots_gets_positive_numbers():
    _, reference = reference_of("roots")
    assert all(v.min() > 0 for v in reference.inputs)
    _, reference = reference_of("rows")
    assert any(v.min() < 0 for v in reference.inputs)


def test_what_follows_a_long_sum_is_not_flat_there():
    """Factors are small, so that a tanh of 1024 terms is not 1 nearly everywhere, where nothing could be
    told.
    """
    function = lambda a, b: [torch.tanh(a @ b)]  # noqa: E731
    ((task, _),) = tasks_of(fused(function, torch.randn(64, 1024), torch.randn(1024, 64)), threads=1)
    op = configured(task, None)
    reference = make_reference(op.body.operations[0].operation)
    assert sum_lengths(op.body.operations[0].operation) == {0: 1024, 1: 1024}
    assert 0.5 < float((reference.results[0].abs() < 0.9).double().mean()) < 0.95
    right = torch.tanh(reference.inputs[0] @ reference.inputs[1])
    assert reference.problem([right]) is None
    assert reference.problem([torch.tanh((reference.inputs[0] * 1.001) @ reference.inputs[1])]) is not None


def test_the_bound_grows_with_the_dtype_and_the_longest_sum():
    def bound(function, *inputs) -> float:
        ((task, _),) = tasks_of(fused(function, *inputs), threads=1)
        module = configured(task, None)
        return bound_of(module.body.operations[0].operation)

    short, long = (bound(lambda x: [(x * 2).sum(0)], torch.randn(n, 96)) for n in (100, 10_000))
    assert long - short == pytest.approx(90 * torch.finfo(torch.float32).eps)
    half = bound(lambda x: [(x * 2).sum(0)], torch.randn(100, 96).bfloat16())
    assert half > 16 * torch.finfo(torch.bfloat16).eps > 100 * short


def test_wrong_results_are_told():
    _, reference = reference_of("rows")
    right = [r.float() for r in reference.results]
    assert reference.problem(right) is None
    worse = [right[0] + 1e-2 * right[0].abs().max(), *right[1:]]
    assert "result 0 is off by" in reference.problem(worse)
    assert "result 0" in reference.problem([right[0] * float("nan"), *right[1:]])
    assert "shape" in reference.problem([right[0][1:], *right[1:]])


def test_equal_inputs_for_equal_seeds():
    module, _ = reference_of("rows")
    op = module.body.operations[0].operation
    for a, b in zip(make_inputs(op, "normal", 3), make_inputs(op, "normal", 3), strict=True):
        assert torch.equal(a, b)


def test_kernels_that_differ_in_nothing_else_are_one_task():
    x = torch.randn(32, 64)
    module = fused(
        lambda a, b: [F.layer_norm(a * 2, (64,)), torch.sum(b * 3), F.layer_norm(b * 2, (64,))], x, x
    )
    found = kernels_of(module, threads=1)
    assert sum(map(len, found.values())) >= len(found)
    assert {task: len(ops) for task, ops in found.items()} == dict(tasks_of(module, threads=1))
