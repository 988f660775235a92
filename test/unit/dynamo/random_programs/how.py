"""How a program is compiled, and the sizes that it is called with one after the other."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .program import Program

DYNAMIC = ("dynamic", "marked", "automatic")


@dataclass(frozen=True)
class How:
    """``sizes``: ``static`` calls once; the others call again with other sizes, compiled by
    ``torch.compile(dynamic=True)`` (``dynamic``), with dims marked by ``maybe_mark_dynamic`` (``marked``), or
    as PyTorch does by itself (``automatic``).
    """

    rounding: str = "fused"
    sizes: str = "static"
    threads: int = 1
    matmuls: str = "auto"

    @property
    def is_dynamic(self) -> bool | None:
        """What ``torch.compile`` is told."""
        return {"static": False, "dynamic": True}.get(self.sizes)

    @property
    def calls(self) -> range:
        """The numbers of the calls; :meth:`Program.inputs` knows the sizes of each."""
        return range(1 if self.sizes == "static" else 3)

    def marked(self, program: Program) -> set[int]:
        """Sizes whose dims are marked."""
        if self.sizes != "marked":
            return set()
        sizes = sorted({n for given in program.given for n in given.shape if n > 1})
        return {n for n in sizes if random.Random(f"{program.seed} marked {n}").random() < 0.6}


def drawn_how(seed: int, sizes: str = "") -> How:
    """How the program of a number is run; ``sizes`` is a kind of sizes, ``forced`` any but static ones, or
    empty.
    """
    r = random.Random(seed)
    rounding, is_dynamic, threads = r.choice(("fused", "eager")), r.random() < 0.2, r.choice((1, 1, 2))
    matmuls = r.choice(("auto", "generated", "generated", "extern"))
    drawn = r.choice(("dynamic", *DYNAMIC))
    if not sizes:
        sizes = drawn if is_dynamic else "static"
    return How(rounding, drawn if sizes == "forced" else sizes, threads, matmuls)
