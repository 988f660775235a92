"""Memory of a deep program from two shallow ones, for a peak at any position."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from shardc.backends.torch.memory.dry_run import META, Peak, dry_run
from shardc.planning.depth.blend import Blend
from shardc.planning.memory import RankMemory


def program(layers: int) -> Iterator[str]:
    """Activations of 10 bytes a layer, a loss that needs 100 more, gradients of 12 bytes a layer."""
    yield "import torch"
    yield "add = torch.ops.aten.add.Tensor"
    yield "def step(rank, x):"
    yield "    # -- forward"
    for n in range(layers):
        yield from ("    # model.py:1", f"    kept_{n} = empty([10], torch.uint8)")
    yield from (
        "    # loss.py:1",
        "    loss = empty([100], torch.uint8)",
        "    del loss",
        "    # -- backward",
    )
    for n in reversed(range(layers)):
        yield from ("    # model.py:1", f"    grad_{n} = empty([12], torch.uint8)")
        yield from (f"    other_{n} = add(kept_{n}, 1)", f"    del kept_{n}, other_{n}")
    yield from ("    # -- optimizer", "    # clip.py:1", "    first = empty([50], torch.uint8)")
    yield "    # adam.py:1"
    for n in range(layers):
        yield f"    new_{n} = add(grad_{n}, 1)"
        yield f"    del grad_{n}, new_{n}"


def memory(layers: int) -> RankMemory:
    text = "\n".join(program(layers))
    return RankMemory(0, {}, dry_run(text, "step", lambda: [None, torch.empty(0, device=META)]))


def test_the_peak_may_be_elsewhere() -> None:
    foretold, whole, two = Blend((58,)).memory(memory(2), [memory(3)]), memory(60), memory(2)
    assert isinstance(foretold.peak, Peak) and isinstance(whole.peak, Peak) and isinstance(two.peak, Peak)
    assert (two.peak.where, whole.peak.where) == ("loss.py:1", "adam.py:1")
    assert (foretold.peak.where, foretold.peak_bytes) == (whole.peak.where, whole.peak_bytes)
    assert foretold.kinds == whole.kinds
