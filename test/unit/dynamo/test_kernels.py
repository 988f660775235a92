"""Fused kernels under ``torch.compile``: next to eager, with every form of input, and when one does not
compile.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from shardc.backends.cpu import compile
from shardc.backends.cpu import compile as kernels
from shardc.backends.eager.proof.tolerance import difference, magnitude, own_precision
from shardc.compiler import warn_once
from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.passes.fuse import kern_fuse

from .conftest import trained
from .language_models import tiny

Wrap = Callable[..., Any]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert (
        found.dtype == expected.dtype
        and found.shape == expected.shape
        and found.stride() == expected.stride()
    )
    bound = own_precision(expected.dtype).relative if expected.dtype.is_floating_point else 0
    assert difference(found, expected) <= bound * magnitude(expected)


BOUNDS = {torch.float64: 1e-9, torch.float32: own_precision(torch.float32).relative}


def gradients_near(
    wrap: Wrap,
    model: nn.Module,
    inputs: tuple[Any, ...],
    loss: Callable[..., Any],
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32),
    **options: Any,
) -> None:
    """Loss and gradients in f64 to 1e-9, in f32 within the oracle's bound of those of eager in f32."""
    for dtype in dtypes:
        bound = BOUNDS[dtype]
        eager = copy.deepcopy(model).to(dtype)
        fused = copy.deepcopy(eager)
        cast = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
        expected, found = loss(eager(*cast)), loss(wrap(fused, fuse=True, **options)(*cast))
        expected.backward()
        found.backward()
        assert abs(found.item() - expected.item()) <= bound * abs(expected.item())
        floor = 1e-3 * max(magnitude(p.grad) for p in eager.parameters())
        for ours, theirs in zip(fused.parameters(), eager.parameters(), strict=True):
            assert difference(ours.grad, theirs.grad) <= bound * (magnitude(theirs.grad) + floor)


def square(output: torch.Tensor) -> torch.Tensor:
    return output.float().square().mean() if output.dtype != torch.float64 else output.square().mean()


@pytest.mark.slow
def test_multilayer_perceptron(compiled: Wrap, programs: list[str]) -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softmax(-1))
    gradients_near(compiled, model, (torch.randn(5, 6),), square)
    assert any("gelu_native_layer_norm_0(" in text for text in programs)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert"])
def test_language_model(compiled: Wrap, programs: list[str], kind: str) -> None:
    model = tiny(kind).train()
    tokens = torch.randint(0, 64, (2, 16))
    # In f32 alone: in f64 they compute in f32 in places.
    gradients_near(compiled, model, (tokens,), lambda loss: loss, (torch.float32,))
    assert all("kernel(" in text for text in programs if text.count("mm(") > 3)


def test_bfloat16_with_eagers_rounding(compiled: Wrap) -> None:
    """Chains without transcendental functions and sums are eager's bit for bit."""
    f = lambda x, y: ((x * 1.5 + 0.25) * y - 1) * 3  # noqa: E731
    x, y = torch.randn(2, 5, 33).bfloat16()
    assert torch.equal(compiled(f, fuse=True, rounding="eager")(x, y), f(x, y))
    near(compiled(f, fuse=True)(x, y), f(x.float(), y.float()).bfloat16())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", [1, 7, 127, 129])
def test_odd_sizes(compiled: Wrap, size: int, dtype: torch.dtype) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = functional.gelu(x + y, approximate="tanh")
        return h, functional.layer_norm(h, (size,)).softmax(-1), (x * y).sum(0)

    x, y = torch.randn(2, 5, size).to(dtype)
    wide = f(x.double(), y.double())
    for found, expected in zip(compiled(f, fuse=True)(x, y), wide, strict=True):
        near(found, expected.to(dtype))


def test_a_mask_that_all_of_the_batch_shares(compiled: Wrap) -> None:
    """Batch and rows lie side by side in the scores, not in the mask and the bias: they are no one loop."""

    def f(x: torch.Tensor, bias: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x + bias).masked_fill(mask.logical_not(), 0.0).softmax(-1)

    arguments = torch.randn(8, 2, 16, 16), torch.randn(1, 2, 16, 16), torch.rand(1, 2, 16, 1) > 0.3
    near(compiled(f, fuse=True)(*arguments), f(*arguments))


def test_inputs_with_other_strides(compiled: Wrap) -> None:
    """Transposed, cut out, broadcast, one in two places; and a result that eager makes transposed."""

    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x * y + z).tanh() * x, x.t().exp() * 2 + 1

    x = torch.randn(6, 4).t()
    arguments = (x, torch.randn(8, 12)[::2, ::2], torch.randn(1, 6).expand(4, 6))
    for found, expected in zip(compiled(f, fuse=True)(*arguments), f(*arguments), strict=True):
        near(found, expected)
    same = torch.randn(4, 6)
    for found, expected in zip(compiled(f, fuse=True)(same, same, same), f(same, same, same), strict=True):
        near(found, expected)


def test_channels_last(compiled: Wrap) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU(), nn.Conv2d(8, 4, 3)).to(
        memory_format=torch.channels_last
    )
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    f = lambda x: model(x).sigmoid() * 2 + 1  # noqa: E731
    near(compiled(f, fuse=True)(x), f(x))


def test_inputs_written_in_place(compiled: Wrap) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2).add_(y)
        return x.exp() + y

    x, y = torch.randn(4, 5), torch.randn(4, 5)
    twin = x.clone()
    near(compiled(f, fuse=True)(x, y), f(twin, y))
    near(x, twin)


@pytest.mark.slow
def test_only_some_inputs_need_gradients(compiled: Wrap) -> None:
    f = lambda x, w, b: functional.layer_norm(x, (8,), w, b).tanh()  # noqa: E731
    for needed in ([0], [1], [0, 2], [1, 2]):
        torch._dynamo.reset()
        arguments = [torch.randn(3, 8), torch.randn(8), torch.randn(8)]
        for i in needed:
            arguments[i].requires_grad_()
        wanted = [arguments[i] for i in needed]
        found = torch.autograd.grad(compiled(f, fuse=True)(*arguments).square().sum(), wanted)
        for a, b in zip(found, torch.autograd.grad(f(*arguments).square().sum(), wanted), strict=True):
            near(a, b)


def test_training_goes_as_in_eager(compiled: Wrap) -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.LayerNorm(16), nn.Linear(16, 4))
    twin, x = copy.deepcopy(model), torch.randn(5, 6)
    expected, _ = trained(twin, twin, (x,))
    found, _ = trained(model, compiled(model, fuse=True), (x,))
    for a, b in zip(found, expected, strict=True):
        assert abs(a - b) < 1e-5 * abs(b)


def test_four_threads_at_once(compiled: Wrap, in_four_threads: Callable[..., None]) -> None:
    f = compiled(lambda x: functional.layer_norm(x.exp() + x, (64,)).softmax(-1), fuse=True)
    inputs = [torch.randn(32, 64) for _ in range(4)]
    expected = [f(x) for x in inputs]

    def work(number: int) -> None:
        for _ in range(20):
            assert torch.equal(f(inputs[number]), expected[number])

    in_four_threads(work)


def test_a_kernel_that_does_not_compile_goes_back_to_aten(
    monkeypatch: pytest.MonkeyPatch, programs: list[str]
) -> None:
    """The other kernels of the graph stay."""
    build, single = kernels.build_library, kernels.compile_functions

    def refuse(module: Any) -> None:
        if "math.tanh" in str(module):
            raise RuntimeError("no tanh today")

    monkeypatch.setattr(kernels, "build_library", lambda module: refuse(module) or build(module))
    monkeypatch.setattr(kernels, "compile_functions", lambda module: refuse(module) or single(module))

    def f(x: torch.Tensor) -> torch.Tensor:
        return ((x * 2).tanh() + 1) @ x * 2 + 3

    x = torch.randn(4, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        near(torch.compile(f, backend="shardc")(x), f(x))
    (text,) = [str(w.message) for w in caught if issubclass(w.category, ShardcFallbackWarning)]
    assert "aten.tanh" in text and "no tanh today" in text and "test_kernels.py" in text
    (program,) = programs
    assert "tanh(" in program and "mul_add_0(" in program


def test_a_result_that_is_expanded_from_a_kernels(compiled: Wrap) -> None:
    """Its memory has one element for all along an expanded dim."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x * 2).tanh().unsqueeze(0).expand(3, *x.shape)
        return y, y.exp()

    x = torch.randn(4, 1, 2).transpose(0, 2)
    for found, expected in zip(compiled(f, fuse=True)(x), f(x), strict=True):
        torch.testing.assert_close(found, expected, check_stride=True)


def test_kernels_without_inputs_are_called_as_one(compiled: Wrap) -> None:
    """Two that are made from nothing, of which a call that stays reads each."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x @ x
        return torch.ones_like(y) @ x, x @ torch.ones_like(y.t())

    x = torch.randn(3, 3)
    torch.testing.assert_close(compiled(f, fuse=True)(x), f(x))


def test_a_crash_of_the_compiler_takes_one_group_with_it(
    monkeypatch: pytest.MonkeyPatch, programs: list[str], tmp_path: Path
) -> None:
    """LLVM aborts on the kernel with the tanh. Warnings name its ops and line; the others of the
    graph stay.
    """
    bad = """llvm.func @bad(%a: vector<4xi32>) -> vector<4xi32> {
      %r = llvm.call_intrinsic "llvm.aarch64.neon.abs.v4i32"(%a) : (vector<4xi32>) -> vector<4xi32>
      llvm.return %r : vector<4xi32>\n}"""
    real = compile.entries

    def crashing(emitted: list[Any], target: str) -> str:
        text = real(emitted, target)
        return (
            text.removesuffix("}") + bad + "}" if any("tanh" in kernel.name for kernel in emitted) else text
        )

    monkeypatch.setattr(compile, "entries", crashing)
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))

    def f(x: torch.Tensor) -> torch.Tensor:
        return ((x * 2).tanh() + 1) @ x * 2 + 3

    x = torch.randn(4, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        near(torch.compile(f, backend="shardc")(x), f(x))
    (text,) = [str(w.message) for w in caught if issubclass(w.category, ShardcFallbackWarning)]
    assert "aten.tanh" in text and "SIGABRT" in text and "test_kernels.py" in text
    (program,) = programs
    assert "tanh(" in program and "mul_add_0(" in program


def test_an_unsupported_target_leaves_everything_to_aten(
    monkeypatch: pytest.MonkeyPatch, programs: list[str]
) -> None:
    monkeypatch.setenv("SHARDC_TARGET", "x86_64 sse4_2")
    f = lambda x: (x * 2).tanh() + 1  # noqa: E731
    x = torch.randn(4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for g in (f, lambda x: f(x) * 2):
            assert torch.equal(torch.compile(g, backend="shardc")(x), g(x))
    (text,) = [str(w.message) for w in caught if issubclass(w.category, ShardcFallbackWarning)]
    assert "x86_64 sse sse2 sse4_2: it lacks avx2 f16c fma" in text and not any(
        "kernel(" in program for program in programs
    )


def test_a_compiler_that_is_broken_leaves_everything_to_aten(
    monkeypatch: pytest.MonkeyPatch, programs: list[str]
) -> None:
    def broken(module: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(kernels, "build_library", broken)
    f = lambda x: (x * 2).tanh() + 1  # noqa: E731
    x = torch.randn(4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.equal(torch.compile(f, backend="shardc")(x), f(x))
    (text,) = [str(w.message) for w in caught if issubclass(w.category, ShardcFallbackWarning)]
    assert "no space left" in text and "kernel(" not in programs[0]


def test_a_cause_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups with one cause are one warning; a library that fails though each kernel compiles is told of,
    too.
    """

    def refuse(module: Any) -> None:
        raise RuntimeError("no disk today")

    f = lambda x, y: ((x * 2).tanh() + 1) @ (y.exp() * 3)  # noqa: E731
    x, y = torch.randn(4, 4), torch.randn(4, 5)
    single = kernels.compile_functions
    monkeypatch.setattr(kernels, "build_library", refuse)
    for compile_functions, said in (
        (refuse, "(and of 1 more groups)"),
        (single, "all groups of the program"),
    ):
        monkeypatch.setattr(kernels, "compile_functions", compile_functions)
        torch._dynamo.reset()
        warn_once.warned.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert torch.equal(torch.compile(f, backend="shardc")(x, y), f(x, y))
        (text,) = [str(w.message) for w in caught if issubclass(w.category, ShardcFallbackWarning)]
        assert said in text and "no disk today" in text


def test_fusing_that_fails_leaves_everything_to_aten(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(kern_fuse, "fuse_module", broken)
    f = lambda x: (x * 2).tanh() + 1  # noqa: E731
    with pytest.warns(ShardcFallbackWarning, match="a bug of ours"):
        torch.testing.assert_close(torch.compile(f, backend="shardc")(torch.ones(4)), f(torch.ones(4)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fused": True}, "UnknownOption: torch.compile has no option 'fused'; did you mean 'fuse'?"),
        ({"fuse": "no"}, "BadArgument: fuse is 'no', not True or False"),
        ({"rounding": "exact"}, "BadArgument: rounding is 'exact', not 'fused' or 'eager'"),
        ({"numerics": "eager"}, "OldSpelling: numerics is now spelled rounding"),
        ({"matmuls": "measured"}, "OldSpelling: matmuls='measured' is now spelled matmuls='auto'"),
        ({"verify": True}, "OptionElsewhere: 'verify' is an option of compile_step, not of torch.compile"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=re.escape(message)):
        torch.compile(lambda x: x + 1, backend="shardc", options=options)(torch.ones(2))
