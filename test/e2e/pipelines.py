"""Training as a pipeline on simulated ranks, in f64."""

from __future__ import annotations

from collections.abc import Sequence

from models import Batch
from torch import Tensor
from training import Captured, Key, Values

from shardc.backends.eager.layout import cut, join
from shardc.backends.eager.pipeline import Blocks, read_pipeline, run_pipeline
from shardc.driver.values import batch_leaves, example_inputs
from shardc.passes.pipeline.pipe_cut import PipeCut, cut_into_stages
from torch_mlir import ir


class PipelineRanks:
    """The programs of a pipeline's ranks and their state."""

    def __init__(self, step: Captured, module: ir.Module, seed: int = 0) -> None:
        program = read_pipeline(module)
        assert program is not None
        self._step, self.program, self._seed = step, program, seed
        self._blocks: list[Blocks] = [{} for _ in program.functions]

    def train(self, batches: Sequence[Batch]) -> tuple[list[Values], float]:
        """Loss and state after each batch, and by how much ranks differ that hold the same."""
        made, spread = [], 0.0
        for batch in batches:
            self._take(batch)
            results = run_pipeline(self.program, self._blocks, widen=True)
            whole: Values = {}
            for ports, found, blocks in zip(self.program.results, results, self._blocks, strict=True):
                for port in ports:
                    assert port.sharding is not None
                    value, gap = join(found[port.key], port.sharding, self.program.mesh, port.global_type.shape)
                    spread = max(spread, gap, _gap(whole.setdefault(port.key, value), value))
                blocks.update(found)
            made.append(whole)
        return made, spread

    def _take(self, batch: Batch) -> None:
        """Inputs for one step: state from the step before, or the model's own values at the first."""
        step = self._step
        first = not any(self._blocks)
        inputs = example_inputs(step.capture, step.optimizer, batch, self._seed)
        if not first:
            inputs |= {("input", n): t for n, t in batch_leaves(step.capture, batch).items()}
            for number in step.capture.hyperparameters:  # the very first step's may differ
                inputs["hyper", number.name].fill_(number.value(step.optimizer))
        for ports, blocks in zip(self.program.arguments, self._blocks, strict=True):
            for port in ports:
                if first or port.role not in ("param", "opt_state", "buffer"):
                    assert port.sharding is not None
                    value = inputs[port.key].clone()
                    blocks[port.key] = cut(value, port.sharding, self.program.mesh, port.padded)
        self._seed += 1


def _gap(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max()) if a.numel() else 0.0
