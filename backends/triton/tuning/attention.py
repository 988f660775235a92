"""Configurations of attention on GPUs: blocks of queries and keys, warps and stages of each kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.backends.triton.attention.kernel import scores_of
from shardc.backends.tuning.sketches import together
from shardc.backends.tuning.space import Parameter, Sketch
from shardc.cost.attention import SIZES, Blocks, Scores, candidates_of, estimate_s, refusal
from shardc.cost.machine import Gpu
from shardc.dialects.kern.attention_maps import Attention


def sketch(spec: Attention, backward: bool, target: Gpu, tf32: bool = False) -> Sketch:
    """Return the sketch of an attention, or of its backward's kernels (names ``dkdv_...`` and ``dq_...``)."""
    kinds = ("dkdv", "dq") if backward else ("forward",)
    found = together([_kernel(scores_of(kind, spec, tf32), target) for kind in kinds])
    name = "attention_backward" if backward else "attention"
    return Sketch(name, found.parameters, found.refusal, found.estimate_s)


def _kernel(scores: Scores, target: Gpu) -> Sketch:
    warps, stages = candidates_of(target)
    values = {"queries": SIZES, "keys": SIZES, "warps": warps, "stages": stages}
    parameters = tuple(Parameter(f"{scores.kind}_{name}", of) for name, of in values.items())
    kernel = _Kernel(scores, target)
    return Sketch(scores.kind, parameters, kernel.refusal, kernel.estimate_s)


@dataclass(frozen=True)
class _Kernel:
    scores: Scores
    target: Gpu

    def refusal(self, values: Mapping[str, int]) -> str | None:
        blocks = self._blocks(values)
        for name in ("queries", "keys", "warps"):
            if (n := getattr(blocks, name)) & (n - 1):
                return f"{self.scores.kind}_{name} = {n} is no power of 2"
        return refusal(blocks, self.scores, self.target)

    def estimate_s(self, values: Mapping[str, int]) -> float:
        return estimate_s(self._blocks(values), self.scores, self.target)

    def _blocks(self, values: Mapping[str, int]) -> Blocks:
        names = ("queries", "keys", "warps", "stages")
        return Blocks(*(values[f"{self.scores.kind}_{name}"] for name in names))
