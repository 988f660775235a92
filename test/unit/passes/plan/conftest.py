"""Small models compiled under a plan, for tests of plans' figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_mlir import ir
from transformers import LlamaConfig, LlamaForCausalLM

from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.passes.manager.pass_pipelines import build, run
from shardc.report.plan_report import Report, make_report
from shardc.report.traffic import Transfer, transfers
from shardc.step.shard import Compiled, compile_capture
from shardc.step.sharding.mesh import make_mesh
from shardc.step.sharding.plan import model_plan_of

BATCH, LENGTH, HIDDEN = 4, 8, 32


@dataclass
class Sharded:
    """A compiled step and what it sends.

    ``single`` is the rank program before ``dist-combine`` packs its collectives: one transfer for each value
    that moves.
    """

    compiled: Compiled
    single: ir.Module

    @cached_property
    def transfers(self) -> list[Transfer]:
        """All but the scalars of the loss."""
        return [t for t in transfers(self.single) if t.type.numel > 1]

    @cached_property
    def packed(self) -> list[Transfer]:
        """The same after ``dist-combine``."""
        return [t for t in transfers(self.compiled.rank_module) if t.type.numel > 1]

    @property
    def report(self) -> Report:
        return make_report(self.compiled.rank_module, self.compiled.plan.text, [])

    @property
    def parameters(self) -> dict[str, TensorType]:
        """Name -> global type."""
        return {
            a.name: TensorType(a.shape, a.dtype) for a in self.compiled.capture.arguments if a.role == "param"
        }

    @property
    def weights(self) -> int:
        """The elements of all parameters."""
        return sum(t.numel for t in self.parameters.values())

    def bytes_moved(self, kind: str, axis: str, phase: str | None = None) -> float:
        """What each device sends in collectives of a kind over one axis, in one phase or all."""
        return sum(
            t.bytes_moved
            for t in self.transfers
            if (t.kind, t.axes) == (kind, (axis,)) and phase in (None, t.phase)
        )

    def counts(self) -> Counter[tuple[str, str, tuple[int, ...], tuple[str, ...]]]:
        """How often a step runs each (phase, kind, local shape of the operand, axes)."""
        found: Counter[tuple[str, str, tuple[int, ...], tuple[str, ...]]] = Counter()
        for t in self.transfers:
            found[t.phase, t.kind, t.type.shape, t.axes] += t.times
        return found

    def annotated(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """Parameter -> the axes of its dims, for those that the plan itself cuts."""
        entries = self.compiled.plan.entries
        return {
            name: e.dims for (role, name), e in entries.items() if role == "param" and e.dims and any(e.dims)
        }

    def layouts(self, role: str = "param") -> dict[str, str]:
        """Name -> layout of every argument of a role, as the report says it."""
        return {name: layout for found, name, _, layout, _ in self.report.shardings if found == role}

    def carried(self) -> Counter[tuple[int, ...]]:
        """The local shapes of what the step's time loops carry from iteration to iteration, scalars aside."""
        function = next(o for o in self.single.body.operations if o.operation.name == "func.func")
        loops = [
            o.operation for o in function.regions[0].blocks[0].operations if o.operation.name == "dist.loop"
        ]
        found: Counter[tuple[int, ...]] = Counter()
        for loop in loops:
            if ir.DenseI32ArrayAttr(loop.attributes["operandSegmentSizes"])[0] == 0:
                continue
            types = [read_type(v.type) for v in loop.operands[0].owner.operands]
            found.update(t.shape for t in types if t is not None and t.numel > 1)
        return found


Compile = Callable[..., Sharded]


@pytest.fixture(scope="session")
def compile_plan() -> Compile:
    """``compile_plan(model, batch, plan, mesh, micro_batches=1, optimizer=AdamW, loss=None, own_plan=True)``.

    ``own_plan=False`` withholds the model's ``tp_plan``.
    """

    def compile_model(
        model: nn.Module,
        batch: Any,
        plan: Any,
        mesh: dict[str, int],
        *,
        micro_batches: int = 1,
        optimizer: Callable[[Any], torch.optim.Optimizer] = torch.optim.AdamW,
        loss: Callable[[Any, Any], Tensor] | None = None,
        own_plan: bool = True,
    ) -> Sharded:
        capture = capture_step(model, optimizer(model.parameters()), batch, loss=loss, context=new_context())
        model_plan = model_plan_of(model) if own_plan else None
        compiled = compile_capture(capture, make_mesh(mesh, micro_batches), plan, model_plan=model_plan)
        single = ir.Module.parse(compiled.levels["2-annotated"], compiled.rank_module.context)
        run(single, build("dist-partition"))
        return Sharded(compiled, single)

    return compile_model


@pytest.fixture(scope="session")
def llama(compile_plan: Compile) -> Compile:
    """``llama(layers, plan, mesh, kv_heads=2, **more)``: a Llama of B=4, S=8, H=32 in f32, compiled."""

    def compile_llama(
        layers: int,
        plan: Any,
        mesh: dict[str, int],
        *,
        kv_heads: int = 2,
        length: int = LENGTH,
        **more: Any,
    ) -> Sharded:
        config = LlamaConfig(
            hidden_size=HIDDEN,
            intermediate_size=64,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=kv_heads,
            vocab_size=64,
        )
        ids = torch.zeros(BATCH, length, dtype=torch.int64)
        return compile_plan(LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}, plan, mesh, **more)

    return compile_llama


@pytest.fixture(scope="session")
def mlp(compile_plan: Compile) -> Compile:
    """``mlp(plan, mesh, bias=False, **more)``: three linear layers 16 -> 32 -> 32 -> 8 on a batch of 8."""

    def compile_mlp(plan: Any, mesh: dict[str, int], *, bias: bool = False, **more: Any) -> Sharded:
        layers = [
            nn.Linear(16, 32, bias),
            nn.ReLU(),
            nn.Linear(32, 32, bias),
            nn.ReLU(),
            nn.Linear(32, 8, bias),
        ]
        batch = {"input": torch.zeros(8, 16)}
        return compile_plan(
            nn.Sequential(*layers), batch, plan, mesh, loss=lambda out, _: out.square().mean(), **more
        )

    return compile_mlp
