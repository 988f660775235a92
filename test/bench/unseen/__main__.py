"""Functions that nobody tuned for: ``torch.compile(backend="shardc")`` against TorchInductor and eager on one
thread, interleaved.

    python test/bench/unseen                          # all lists, forward, and with gradients
    python test/bench/unseen --lists second           # one list
    python test/bench/unseen --functions elu roll --repeats 21

Times are medians of ``--repeats`` rounds, in the thread's own CPU time, as in ``cpu_kernels.py``. Values are
compared with f64. A function that fails or gives wrong values has its error in place of figures.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import eighth
import eighth_models
import eleventh
import fifth
import fifth_fields
import first
import fourth
import fourth_fields
import ninth
import ninth_fields
import ninth_layers
import second
import seventh
import seventh_models
import sixth
import sixth_fields
import sixth_models
import tenth
import third
import third_products
import thirteenth
import torch
import twelfth
from torch import Tensor

sys.path.append(str(Path(__file__).parents[1]))
from cpu_kernels import measure
from machine import heading, table

LISTS = {
    "first": first.FUNCTIONS,
    "second": second.FUNCTIONS,
    "third": {**third.FUNCTIONS, **third_products.FUNCTIONS},
    "fourth": {**fourth.FUNCTIONS, **fourth_fields.FUNCTIONS},
    "fifth": {**fifth.FUNCTIONS, **fifth_fields.FUNCTIONS},
    "sixth": {**sixth.FUNCTIONS, **sixth_fields.FUNCTIONS, **sixth_models.FUNCTIONS},
    "seventh": {**seventh.FUNCTIONS, **seventh_models.FUNCTIONS},
    "eighth": {**eighth.FUNCTIONS, **eighth_models.FUNCTIONS},
    "ninth": {**ninth.FUNCTIONS, **ninth_layers.FUNCTIONS, **ninth_fields.FUNCTIONS},
    "tenth": tenth.FUNCTIONS,
    "eleventh": eleventh.FUNCTIONS,
    "twelfth": twelfth.FUNCTIONS,
    "thirteenth": thirteenth.FUNCTIONS,
}
FUNCTIONS = {name: function for one in LISTS.values() for name, function in one.items()}
TOLERANCE = {torch.bfloat16: 2e-2}
"""Largest difference from f64, of the largest element; 1e-4 for all other dtypes."""


def _runner(call: Callable[..., Tensor], inputs: list[Tensor], backward: bool) -> Callable[[], list[Tensor]]:
    if not backward:

        def forward() -> list[Tensor]:
            with torch.no_grad():
                return [call(*inputs)]

        return forward
    leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in inputs]
    asked = [t for t in leaves if t.requires_grad]
    torch.manual_seed(1)
    with torch.no_grad():
        made = call(*leaves)
        seed = torch.empty_like(made).copy_(torch.randn(made.shape))  # with the result's strides

    def train() -> list[Tensor]:
        made = call(*leaves)
        return [made.detach(), *torch.autograd.grad(made, asked, seed, allow_unused=True)]

    return train


def check(found: list[Tensor], eager: list[Tensor], truth: list[Tensor]) -> None:
    """Raise AssertionError where a result is not close to the one in f64, and twice as far as eager's.

    Integers must be eager's, or in sum as close to those of f64: rounding gives others.
    """
    for got, other, exact in zip(found, eager, truth, strict=True):
        if (got is None) != (exact is None):
            raise AssertionError("a gradient is missing")
        if got is not None and got.is_floating_point():
            bound = TOLERANCE.get(got.dtype, 1e-4) * float(exact.abs().max().clamp_min(1e-30))
            bound = max(bound, 2 * float((other.double() - exact).abs().max()))  # equal maxima of a pool
            torch.testing.assert_close(got.double(), exact.double(), rtol=0, atol=bound)
        elif got is not None and not torch.equal(got, other):
            far, bound = ((t.double() - exact.double()).abs().sum() for t in (got, other))
            assert far <= bound, f"integers are {far:.0f} from those of f64, eager's {bound:.0f}"


def compare(name: str, backward: bool, repeats: int) -> list[object]:
    """One line of the table."""
    torch.manual_seed(0)
    function, inputs_of, _ = FUNCTIONS[name]
    inputs = inputs_of()
    torch._dynamo.reset()
    calls = {
        "shardc": torch.compile(function, backend="shardc", dynamic=False),
        "inductor": torch.compile(function, dynamic=False),
        "eager": function,
    }
    runners = {contender: _runner(call, inputs, backward) for contender, call in calls.items()}
    exact = [t.double() if t.is_floating_point() else t for t in inputs]
    check(runners["shardc"](), runners["eager"](), _runner(function, exact, backward)())
    seconds = measure(runners, repeats, time.thread_time)
    ours = seconds["shardc"]
    what = "forward + backward" if backward else "forward"
    times = [1e3 * seconds[c] for c in calls]
    return [name, what, *times, ours / seconds["inductor"], ours / seconds["eager"]]


def _rows(names: list[str], repeats: int) -> Iterator[list[object]]:
    for name in names:
        for backward in (False, True) if FUNCTIONS[name][2] else (False,):
            try:
                row = compare(name, backward, repeats)
            except Exception as failure:  # goes into the table: every function is counted
                text = " ".join(str(failure).split())[:80]
                what = "forward + backward" if backward else "forward"
                row = list[object]((name, what, text, *[""] * 4))
            cells = (f"{c:.3f}" if isinstance(c, float) else str(c) for c in row)
            print(" ".join(cells), file=sys.stderr, flush=True)
            yield row


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--lists", nargs="*", default=list(LISTS), choices=list(LISTS))
    options.add_argument("--functions", nargs="*", choices=list(FUNCTIONS))
    options.add_argument("--repeats", type=int, default=11)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    rows = list(
        _rows(chosen.functions or [name for one in chosen.lists for name in LISTS[one]], chosen.repeats)
    )
    columns = ["function", "what", "shardc ms", "Inductor ms", "eager ms", "/ Inductor", "/ eager"]
    print(heading("Functions that nobody tuned for"))
    print(table(columns, rows))
    for what in ("forward", "forward + backward"):
        ratios = [row[5] for row in rows if row[1] == what and isinstance(row[5], float)]
        mean = math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))
        print(
            f"{what}: geometric mean {mean:.2f}, {sum(r > 1.1 for r in ratios)} of {len(ratios)} above 1.1."
        )


if __name__ == "__main__":
    main()
