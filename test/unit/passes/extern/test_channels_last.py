"""``torch-channels-last``: values against f64 and eager, and which convolutions get channels last."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch_mlir import ir

from shardc.backends.cpu.convolutions import candidates
from shardc.backends.eager.interpreter import run
from shardc.dialects.aten.call import CallReader, target_name
from shardc.dialects.kern.strides import note_strides
from shardc.frontend.graph.aot_graph import import_graph
from shardc.passes.extern.convolution import DIRECT, FIRST, FORMS, Convolution, Form, is_considered
from shardc.passes.extern.torch_channels_last import relayout_module

Tensor = torch.Tensor
F = nn.functional

MIXED = (2, 3, 8, 9)
LASTS = [form for form in FORMS if form.is_last]
SETTINGS = {
    "plain": lambda x, w, b: F.conv2d(x, w, b),
    "no bias": lambda x, w, b: F.conv2d(x, w),
    "dilated": lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=(1, 2), dilation=(2, 1)),
    "transposed": lambda x, w, b: F.conv_transpose2d(
        x, w.transpose(0, 1), b, stride=2, padding=1, output_padding=1
    ),
}


def faster(*forms: Form, seconds: float = 0.5) -> Callable[[Convolution], dict[str, float]]:
    """What a machine measures on which some forms are faster than channels first."""
    times = dict.fromkeys(map(str, FORMS), 2.0) | {str(FIRST): 1.0}
    return lambda convolution: times | {str(form): seconds for form in forms}


def changed(
    f: Callable[..., object],
    *tensors: Tensor,
    forms: Sequence[Form] = LASTS,
    returned: Sequence[object] = (),
) -> tuple[list[Tensor], list[str], int]:
    """What ``f`` gives with its convolutions relaid, its calls, and how many changed. f64 is compared."""
    module = traced(f, tensors)
    before = run(module, [[t] for t in tensors], widen=True)
    strides = [None if t.is_contiguous() else tuple(t.stride()) for t in tensors]
    note_strides(module.body.operations[0].operation, strides)
    count = relayout_module(module, faster(*forms), returned)
    module.operation.verify()
    after = run(module, [[t] for t in tensors], widen=True)
    for [wide], [exact] in zip(after, before, strict=True):
        torch.testing.assert_close(wide, exact, rtol=1e-12, atol=1e-12)
    return [made for [made] in run(module, [[t] for t in tensors])], calls(module), count


def traced(f: Callable[..., object], tensors: Sequence[Tensor]) -> ir.Module:
    """The level-1 module of ``f``, whose results are a tensor or a tuple of them."""

    def flat(*args: Tensor) -> list[object]:
        made = f(*args)
        return [*made] if isinstance(made, tuple) else [made]

    return import_graph(make_fx(flat, tracing_mode="fake")(*tensors), "forward").module


def calls(module: ir.Module) -> list[str]:
    ops = [o.operation for o in module.body.operations[0].operation.regions[0].blocks[0].operations]
    return [target_name(op) for op in ops if op.name.startswith("torch.")]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_values_are_eagers(name: str, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    x = torch.randn(MIXED).to(memory_format=layout)
    w, b = torch.randn(4, 3, 3, 3), torch.randn(4)
    (made,), names, count = changed(SETTINGS[name], x, w, b)
    assert count == 1 and "shardc.convolution_last" in names
    torch.testing.assert_close(made, SETTINGS[name](x, w, b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(4, 6, 3, padding=1, groups=2), (2, 4, 9)),
        (nn.Conv3d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 5, 6, 7)),
        (nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2), (2, 4, 9)),
        (nn.ConvTranspose3d(4, 6, 3, stride=2, output_padding=1, bias=False), (2, 4, 3, 4, 5)),
    ],
    ids=str,
)
def test_dims_groups_and_slices(layer: nn.Module, shape: tuple[int, ...]) -> None:
    """The input is every second pixel of a larger image: not contiguous in any layout."""
    torch.manual_seed(0)
    x = torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2]
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    given = [x, *parameters.values()]

    def call(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(parameters, values, strict=True)), (x,))

    (made,), _, count = changed(call, *given)
    assert count == 1
    torch.testing.assert_close(made, call(*given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["convolution_last", "convolution_direct"])
@pytest.mark.parametrize("name", SETTINGS)
def test_gradients(name: str, form: str) -> None:
    """Of a backward, a kernel computes the input's gradient."""
    torch.manual_seed(0)
    x, w, b = torch.randn(MIXED), torch.randn(4, 3, 3, 3), torch.randn(4)

    def gradients(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        leaves = [t.detach().requires_grad_() for t in (x, w, b)]
        made = (SETTINGS[name](*leaves) ** 2).sum()
        return tuple(g for g in torch.autograd.grad(made, leaves, allow_unused=True) if g is not None)

    is_last = form == "convolution_last"
    made, names, count = changed(gradients, x, w, b, forms=LASTS if is_last else [DIRECT])
    assert count == 2
    if is_last:
        assert "shardc.convolution_last_backward" in names
    else:
        assert names.count("shardc.convolution_direct") == 2 and "aten.convolution_backward" in names
    for found, eager in zip(made, gradients(x, w, b), strict=True):
        torch.testing.assert_close(found, eager, rtol=1e-4, atol=1e-4)


def two(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(F.conv2d(x, v).relu() * 2, w).amax(1)


X, V, W = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(5, 4, 3, 3)


def test_kernels_between_convolutions_keep_channels_last() -> None:
    """The first convolution's input is copied. Its result, and the second's operands, are not."""
    assert changed(two, X, V, W, forms=[Form(), Form(True, True, False)])[2] == 2
    assert changed(two, X, V, W, forms=[Form()])[2] == 0  # then the second's input has channels first


def test_results_of_the_program_are_copied() -> None:
    copied = [Form(True, True, True)]
    assert changed(F.conv2d, X, V, forms=copied)[2] == 1
    assert changed(F.conv2d, X, V, forms=[Form(True, True, False)])[2] == 0
    last = tuple(torch.empty(2, 4, 6, 6).to(memory_format=torch.channels_last).stride())
    assert changed(F.conv2d, X, V, forms=[Form(True, True, False)], returned=[last])[2] == 1


def test_images_with_channels_last_are_not_copied() -> None:
    x = X.to(memory_format=torch.channels_last)
    assert changed(F.conv2d, x, V, forms=[Form(True, False, True)])[2] == 1
    assert changed(F.conv2d, X, V, forms=[Form(True, False, True)])[2] == 0


def test_images_that_are_views_of_channels_last_are_not_copied() -> None:
    def given(x: Tensor, v: Tensor) -> Tensor:
        return F.conv2d((x * 2).permute(0, 3, 1, 2), v)

    def read(x: Tensor, v: Tensor) -> Tensor:
        return F.conv2d(x, v).permute(0, 2, 3, 1) * 2

    _, names, count = changed(given, torch.randn(2, 8, 8, 3), V, forms=[Form(True, False, True)])
    assert count == 1 and "aten.clone" not in names
    assert changed(read, X, V, forms=[Form(True, True, False)])[2] == 1

    def back(x: Tensor, v: Tensor) -> Tensor:  # a permute of a permute has channels first
        return F.conv2d(x.permute(0, 2, 3, 1).permute(0, 3, 1, 2), v)

    assert changed(back, X, V, forms=[Form(True, False, True)])[2] == 0


def test_calls_that_are_no_kernels_read_channels_first() -> None:
    def product(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, v).flatten(1) @ w

    w = torch.randn(4 * 36, 3)
    assert changed(product, X, V, w, forms=[Form(True, True, False)])[2] == 0
    assert changed(product, X, V, w, forms=[Form(True, True, True)])[2] == 1


def test_an_image_is_copied_once() -> None:
    def pair(x: Tensor, v: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = (x * 2).relu()
        return F.conv2d(y, v).amax(1), F.conv2d(y, w).amax(1)

    _, names, count = changed(pair, X, V, torch.randn(5, 3, 3, 3))
    assert count == 2 and names.count("aten.clone") == 1


def test_a_kernel_computes_what_it_computes_fastest() -> None:
    """Only forward convolutions of images with channels first."""
    (made,), names, count = changed(two, X, V, W, forms=[DIRECT])
    assert count == 2 and names.count("shardc.convolution_direct") == 2
    torch.testing.assert_close(made, two(X, V, W), rtol=1e-5, atol=1e-5)
    x = X.to(memory_format=torch.channels_last)
    assert changed(F.conv2d, x, V, forms=[DIRECT])[2] == 0
    assert "shardc.convolution_last" in changed(F.conv2d, x, V, forms=[DIRECT, Form(True, False, True)])[1]
    copied = Form(True, True, True)
    assert "shardc.convolution_direct" in changed(F.conv2d, X, V, forms=[DIRECT, copied])[1]


def test_small_gains_change_nothing() -> None:
    module = traced(F.conv2d, [X, V])
    assert relayout_module(module, faster(*LASTS, seconds=0.96)) == 0
    assert relayout_module(module, faster(DIRECT, seconds=0.99)) == 0
    assert relayout_module(module, lambda convolution: {}) == 0


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_candidates_of_a_smaller_batch_run(form: Form) -> None:
    module = traced(SETTINGS["transposed"], [X, torch.randn(4, 3, 3, 3), torch.randn(4)])
    ops = [o.operation for o in module.body.operations[0].operation.regions[0].blocks[0].operations]
    (op,) = (op for op in ops if op.name == "torch.aten.convolution")
    call = CallReader().read(op).spec
    assert is_considered(call)
    whole = Convolution(call)
    small = whole.shrunk(whole.flops / 2)
    assert small.flops == whole.flops / 2 and small.images[0].shape == (1, *X.shape[1:])
    assert whole.shrunk(whole.flops / 2, threads=X.shape[0]) == whole
    [made] = [c.build()() for c in candidates(small) if c.name == str(form)]
    found = made[-1] if isinstance(made, tuple) else made
    first = not form.is_last or form.made_first
    assert isinstance(found, Tensor) and found.shape[1 if first else -1] == 4


@pytest.mark.filterwarnings("error::shardc.runtime.report.messages.ShardcWarning")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_compiled_layers_against_f64(layout: torch.memory_format) -> None:
    """Whichever forms this machine finds fastest, values, gradients and strides are eager's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.ConvTranspose2d(16, 24, 3, stride=2), nn.GELU(), nn.Conv2d(24, 8, 3, dilation=2))
    model = model.to(memory_format=layout)
    exact = copy.deepcopy(model).double()
    x = torch.randn(4, 16, 12, 12).to(memory_format=layout).requires_grad_()
    made, eager = torch.compile(model, backend="shardc")(x), model(x)
    wide = x.detach().double().requires_grad_()
    truth = exact(wide)
    assert made.stride() == eager.stride()
    torch.testing.assert_close(made.double(), truth, rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(made.square().sum(), [x, *model.parameters()])
    right = torch.autograd.grad(truth.square().sum(), [wide, *exact.parameters()])
    for grad, expected in zip(found, right, strict=True):
        scale = expected.abs().max().item()
        torch.testing.assert_close(grad.double(), expected, rtol=0, atol=1e-5 * scale)
