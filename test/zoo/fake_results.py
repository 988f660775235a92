"""Comparison of fake tensors' predictions with real results, over PyTorch's operator database.

    python test/zoo/fake_results.py [--only NAME ...] [--sample 25 --seed 20260101] [--samples 2]

Each op is traced by AOTAutograd, forward and backward, with the tables that shardc's front ends trace with
(``frontend/fake_results.py`` corrects predictions there); then the graphs run call by call on real tensors.
Dtype, shape, strides, and which arguments a result shares memory with are compared. Calls: each dtype of an
op, mixed dtypes (one argument a half and the others f32, and the other way round), f32 under autocast, and
other layouts. The exit code is 1 if a prediction is wrong that ``KNOWN`` does not list.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import itertools
import random
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function
from torch.fx import GraphModule, Interpreter, Node
from torch.testing import make_tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, OpInfo, SampleInput, UnaryUfuncInfo
from torch.utils import _pytree as pytree

from shardc.dynamo.trace import tables

HALVES = (torch.bfloat16, torch.float16)
DTYPES = (torch.float32, torch.float64, *HALVES, torch.int64, torch.bool, torch.complex64)
AMONG = 24
"""Samples are taken evenly from this many first ones."""

KNOWN: dict[str, str] = {}
"""Operators whose predictions stay wrong, each with the reason why that does no harm."""


@dataclass(frozen=True)
class Wrong:
    """A prediction that differs: of which ATen operator, in what, and by which call it was found."""

    op: str
    what: str
    call: str


def check_op(op: OpInfo, samples: int) -> Iterator[list[Wrong] | str | None]:
    """What is wrong in each call of an op; None for a call that eager refuses, and why where it cannot be
    traced.
    """
    name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
    for text, sample, autocast in _calls(op, samples):
        yield _check(op.op, sample, autocast, f"{name}, {text}")


def _calls(op: OpInfo, samples: int) -> Iterator[tuple[str, SampleInput, torch.dtype | None]]:
    for dtype in (d for d in DTYPES if d in op.supported_dtypes("cpu")):
        grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        for number, sample in _samples(op, dtype, samples, grad):
            yield f"{_short(dtype)} sample {number}", sample, None
    if torch.float32 not in op.supported_dtypes("cpu"):
        return
    plain = _samples(op, torch.float32, samples, op.supports_autograd)
    for (number, sample), (layout, of) in itertools.product([*plain, *_images(op)], LAYOUTS.items()):
        yield f"f32 sample {number}, {layout}", _mapped(sample, of), None
    for half, (number, sample) in itertools.product(HALVES, plain):
        yield f"f32 sample {number} under autocast in {_short(half)}", sample, half
        if sum(_is_float(x) for x in pytree.tree_leaves((sample.input, sample.args, sample.kwargs))) > 1:
            for first in (half, torch.float32):
                mixed = _mixed(sample, first, half if first is torch.float32 else torch.float32)
                yield f"sample {number}, first tensor {_short(first)}, mixed with {_short(half)}", mixed, None
                yield (
                    f"sample {number}, first tensor {_short(first)}, under autocast in {_short(half)}",
                    mixed,
                    half,
                )


def _samples(op: OpInfo, dtype: torch.dtype, count: int, grad: bool) -> list[tuple[Any, SampleInput]]:
    torch.manual_seed(0)
    random.seed(0)
    some = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), AMONG))
    chosen = sorted({round((i + 0.5) * len(some) / count - 0.5) for i in range(count)}) if some else []
    return [(i, some[i]) for i in chosen if i < len(some)]


def _images(op: OpInfo) -> Iterator[tuple[str, SampleInput]]:
    """Samples of four dims, with operands that are broadcast, for ops whose own are vectors."""
    make = partial(make_tensor, device="cpu", dtype=torch.float32, requires_grad=op.supports_autograd)
    if isinstance(op, UnaryUfuncInfo):
        low, high = op.domain
        yield "of an image", SampleInput(make((2, 3, 4, 5), low=low, high=high))
    elif isinstance(op, BinaryUfuncInfo):
        for shape in ((2, 3, 4, 5), (2, 3, 1, 1), (3, 1, 1), (5,)):
            x, y = (make(s, **op.lhs_make_tensor_kwargs) for s in ((2, 3, 4, 5), shape))
            yield f"of an image and {shape}", SampleInput(x, args=(y,))
    elif op.name == "__getitem__":
        x, index = make((4, 4, 4)), torch.arange(6).reshape(3, 2) % 4
        for place in (
            (index,),
            (index, index),
            (slice(None), index),
            (index, slice(None), index),
            (0, index, index),
        ):
            yield f"at {len(place)} places", SampleInput(x, args=(place,))


def _mixed(sample: SampleInput, first: torch.dtype, others: torch.dtype) -> SampleInput:
    """The sample with its first floating tensor in one dtype, and all others in another."""
    dtypes = itertools.chain([first], itertools.repeat(others))
    return _mapped(sample, lambda x, _: x.to(next(dtypes)) if _is_float(x) else x)


def _mapped(sample: SampleInput, of: Callable[[torch.Tensor, int], torch.Tensor]) -> SampleInput:
    """The sample with ``of(tensor, number)`` for each strided tensor."""
    numbers = itertools.count()

    def new(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
            return x
        made = of(x.detach(), next(numbers)).detach()
        return made.requires_grad_(x.requires_grad) if made.is_floating_point() or made.is_complex() else made

    input_, args, kwargs = pytree.tree_map(new, (sample.input, sample.args, sample.kwargs))
    return SampleInput(input_, args=args, kwargs=kwargs, output_process_fn_grad=sample.output_process_fn_grad)


def _transposed(x: torch.Tensor) -> torch.Tensor:
    """The same numbers, laid out with the last two dims the other way round, or channels last."""
    if x.dim() in (4, 5):
        return x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    return x.mT.contiguous().mT if x.dim() > 1 else x


def _reversed(x: torch.Tensor) -> torch.Tensor:
    return x.permute(tuple(reversed(range(x.dim()))))


LAYOUTS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "all transposed": lambda x, _: _transposed(x),
    "the first transposed": lambda x, n: x if n else _transposed(x),
    "all but the first transposed": lambda x, n: _transposed(x) if n else x,
    "all in reverse": lambda x, _: _reversed(_reversed(x).contiguous()),
    "every second": lambda x, _: torch.stack([x, x], -1)[..., 0],
}
"""How tensors lie in memory otherwise, by their number among the tensors."""


def _check(
    function: Callable[..., Any], sample: SampleInput, autocast: torch.dtype | None, call: str
) -> list[Wrong] | str | None:
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
    if any(leaves[i].layout is not torch.strided for i in places):
        return None

    def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = list(leaves)
        for i, tensor in zip(places, tensors, strict=True):
            given[i] = tensor
        args, kwargs = pytree.tree_unflatten(given, spec)
        with torch.autocast("cpu", autocast) if autocast else nullcontext():
            made = sample.output_process_fn_grad(function(*args, **kwargs))
        return [x for x in pytree.tree_leaves(made) if isinstance(x, torch.Tensor)]

    def differentiate(run: Callable[..., list[torch.Tensor]]) -> None:
        inputs = [leaves[i].detach().clone().requires_grad_(leaves[i].requires_grad) for i in places]
        made = [x for x in run(*inputs) if x.requires_grad]
        wanted = [x for x in inputs if x.requires_grad]
        if made and wanted:
            torch.autograd.grad(made, wanted, [torch.ones_like(x) for x in made], allow_unused=True)

    try:
        differentiate(run)
    except Exception:
        return None
    found: list[Wrong] = []
    compare = partial(_compared, found, call)
    try:
        differentiate(
            aot_function(run, compare, compare, decompositions=tables(), keep_inference_input_mutations=True)
        )
    except Exception as error:
        return found or f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:100]}"
    return found


def _compared(found: list[Wrong], call: str, graph: GraphModule, _: Any) -> Callable[..., Any]:
    return _Comparing(graph, found, call).run


class _Comparing(Interpreter):
    """Runs a graph; each call's results are compared with its ``val``."""

    def __init__(self, graph: GraphModule, found: list[Wrong], call: str) -> None:
        super().__init__(graph)
        self._found, self._call = found, call

    def run_node(self, n: Node) -> Any:
        made = super().run_node(n)
        if (
            n.op == "call_function"
            and isinstance(n.target, torch._ops.OpOverload)
            and not n.target._schema.is_mutable
        ):
            args = [x for a in n.all_input_nodes for x in _tensors(self.env.get(a))]
            fakes = [x for a in n.all_input_nodes for x in _tensors(a.meta["val"])]
            for number, (real, fake) in enumerate(zip(_flat(made), _flat(n.meta["val"]), strict=True)):
                for what in _differences(real, fake, args, fakes):
                    self._found.append(Wrong(str(n.target), f"result {number}: {what}", self._call))
        return made


def _differences(real: Any, fake: Any, args: list[Any], fakes: list[Any]) -> Iterator[str]:
    if not isinstance(real, torch.Tensor) or not isinstance(fake, torch.Tensor):
        if isinstance(real, torch.Tensor) != isinstance(fake, torch.Tensor):
            yield f"{fake!r} predicted, {real!r} came"
        return
    if real.dtype != fake.dtype:
        yield f"dtype {fake.dtype} predicted, {real.dtype} came"
    if real.shape != fake.shape:
        yield f"shape {tuple(fake.shape)} predicted, {tuple(real.shape)} came"
    elif _strides(real) != _strides(fake):
        yield f"strides {fake.stride()} of {tuple(fake.shape)} predicted, {real.stride()} came"
    shared, predicted = _sharing(real, args), _sharing(fake, fakes)
    if real.numel() and shared != predicted:
        yield f"memory of arguments {predicted} predicted, of {shared} came"


def _strides(x: torch.Tensor) -> list[int]:
    """Those that matter: of dims with more than one element."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1] if x.numel() else []


def _sharing(x: torch.Tensor, others: list[torch.Tensor]) -> list[int]:
    storage = x.untyped_storage()._cdata
    return [number for number, other in enumerate(others) if other.untyped_storage()._cdata == storage]


def _flat(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple | list) else [made]


def _tensors(value: Any) -> list[torch.Tensor]:
    return [x for x in _flat(value) if isinstance(x, torch.Tensor)]


def _is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="names of ops")
    parser.add_argument("--sample", type=int, help="only so many ops, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=2, help="samples of each op in each dtype")
    parser.add_argument("--untraced", action="store_true", help="say why calls were not traced")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    ops = [op for op in op_db if not options.only or op.name in options.only]
    if options.sample:
        ops = random.Random(options.seed).sample(ops, options.sample)
        print(f"seed {options.seed}: {' '.join(op.name for op in ops)}")
    started, calls = time.monotonic(), Counter[str]()
    found: dict[str, dict[str, str]] = defaultdict(dict)
    untraced: dict[str, str] = {}
    for op in ops:
        for wrong in check_op(op, options.samples):
            calls[
                "refused by eager"
                if wrong is None
                else "not traced"
                if isinstance(wrong, str)
                else "compared"
            ] += 1
            if isinstance(wrong, str):
                untraced.setdefault(wrong, op.name)
            else:
                for each in wrong or ():
                    found[each.op].setdefault(each.what, each.call)
    for op, differences in sorted(found.items()):
        print(f"{op}{': known, ' + KNOWN[op] if op in KNOWN else ''}")
        for what, call in itertools.islice(differences.items(), 6):
            print(f"    {what} ({call})")
    for why, op in untraced.items() if options.untraced else ():
        print(f"not traced: {why} ({op})")
    print(
        f"{len(ops)} ops, calls {dict(calls)}, in {time.monotonic() - started:.0f} s: {len(found)} "
        f"operators are wrong"
    )
    return int(any(op not in KNOWN for op in found))


if __name__ == "__main__":
    sys.exit(main())
