"""Lightning strategy whose training step is compiled for a mesh."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric.utilities.distributed import (
    _get_default_process_group_backend_for_device,
    _init_dist_connection,
)
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import ParallelStrategy
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.distributed.constants import default_pg_timeout
from torch.optim import Optimizer

from shardc.frontend.importing.recorder import caller_line
from shardc.integrations.lightning_arguments import check_module, options_of
from shardc.integrations.sharded_calls import ShardedCalls, gathered
from shardc.integrations.training_step import LOSS, TrainingStep
from shardc.options.step import StepOptions
from shardc.runtime.outputs import StepResult
from shardc.runtime.torch_private import pytree
from shardc.step.compile_step import CompiledStep, compile_with


class ShardcStrategy(ParallelStrategy):
    """Train a LightningModule that uses automatic optimization with a step compiled for a mesh.

    The data loader's batch is the global batch, which all ranks read: give all the same seed
    (``L.seed_everything``). In validation, test and prediction each call of a module runs on the sharded
    weights and returns whole tensors. A checkpoint has whole weights, as Lightning's on one device.

    Args:
        mesh, plan, options: Options of ``compile_step``. ``gradient_clip_val`` and ``precision`` of the
        ``Trainer`` are honoured.

    Raises:
        TrainerArgumentRefused: at ``fit``, for a setting that a compiled step cannot honour.

    Example:
        >>> strategy = ShardcStrategy(mesh={"data": 2}, plan="zero3")  # doctest: +SKIP
        >>> L.Trainer(strategy=strategy, devices=2).fit(module, loader)  # doctest: +SKIP
    """

    strategy_name = "shardc"
    is_distributed = False
    """Read by Lightning before it splits data loaders between ranks."""

    def __init__(self, mesh: Mapping[str, int], plan: object = "data", **options: object) -> None:
        super().__init__()
        ((file, line), *_) = caller_line()
        self._where = f"{file}:{line}"
        self._options = StepOptions.of({"mesh": mesh, "plan": plan, **options})
        self.num_nodes = 1
        self.step: CompiledStep | None = None
        """Compiled step; None before the first batch."""
        self._traced: TrainingStep | None = None
        self._calls: ShardedCalls | None = None

    @property
    def root_device(self) -> torch.device:
        """Return this rank's device."""
        assert self.parallel_devices is not None
        return self.parallel_devices[self.local_rank]

    @property
    def num_processes(self) -> int:
        """Return the number of processes on this node."""
        return len(self.parallel_devices or ())

    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        if not self.cluster_environment.creates_processes_externally:
            self._launcher = _SubprocessScriptLauncher(
                self.cluster_environment, self.num_processes, self.num_nodes
            )

    def setup_environment(self) -> None:
        """Join the processes."""
        super().setup_environment()
        environment = self.cluster_environment
        assert environment is not None
        environment.set_global_rank(self.node_rank * self.num_processes + self.local_rank)
        environment.set_world_size(self.num_nodes * self.num_processes)
        backend = _get_default_process_group_backend_for_device(self.root_device)
        _init_dist_connection(environment, backend, timeout=default_pg_timeout)

    def setup(self, trainer: Trainer) -> None:
        """Set up as on one device, and check the settings. Raises TrainerArgumentRefused."""
        super().setup(trainer)
        if trainer.state.fn == TrainerFn.FITTING:
            check_module(trainer, self._module, self.optimizers, self._where)

    def model_to_device(self) -> None:
        """Move the module to the device until the step holds its tensors."""
        if self.step is None:
            self._module.to(self.root_device)

    def teardown(self) -> None:
        """Leave the module on its device, with the step's tensors, instead of moving it to the host."""
        assert self.cluster_environment is not None and self.accelerator is not None
        self.cluster_environment.teardown()
        self.precision_plugin.teardown()
        self.accelerator.teardown()

    # Training.

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Run one compiled step, the update included, on a global batch and return the 0-d loss."""
        batch = args[0]
        if self.step is None:
            self._compile(batch)
        assert self.step is not None and self._traced is not None
        found = self.step((batch,))
        loss, outputs = found if isinstance(found, StepResult) else (found, {})
        values = {**outputs, LOSS: loss.detach()}
        for name, key, how in self._traced.logged:
            self._module.log(name, values[key], **{"batch_size": _rows(batch), **how})
        return values[LOSS]

    def _compile(self, batch: object) -> None:
        module, trainer = self._module, self._module.trainer
        takes_index = "batch_idx" in inspect.signature(module.training_step).parameters
        self._traced = TrainingStep(module, takes_index)
        options = options_of(trainer, self._options)
        outputs = {**self._traced.outputs(batch), **(options.results.outputs or {})}
        if outputs:
            options = replace(options, results=replace(options.results, outputs=outputs))
        self.step = compile_with(self._traced, self.optimizers[0], (batch,), options)
        self.step.steps_done = trainer.global_step
        self._calls = ShardedCalls(module, self.step, options)

    def backward(self, closure_loss: Tensor, optimizer: Optimizer | None, *_: Any, **__: Any) -> Tensor:
        """Do nothing, since the step includes the backward."""
        return closure_loss

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: object = None, **kwargs: Any
    ) -> Any:
        """Run the closure, which contains the step; parameters have no gradients here."""
        found = closure()
        optimizer.step()  # has no effect, but schedulers warn without it
        return found

    # Evaluation: the module's own steps, whose calls of modules run sharded.

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's own step."""
        return self._evaluate("validation_step", *args, **kwargs)

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's own step."""
        return self._evaluate("test_step", *args, **kwargs)

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's own step."""
        return self._evaluate("predict_step", *args, **kwargs)

    def _evaluate(self, name: str, *args: Any, **kwargs: Any) -> Any:
        run = getattr(self._module, name)
        with ExitStack() as stack:
            stack.enter_context(self.precision_plugin.val_step_context())
            if self._calls is not None:
                stack.enter_context(self._calls.taken())
            return run(*args, **kwargs)

    # Checkpoints: whole tensors, which all ranks gather together.

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return whole weights on every rank."""
        return {name: gathered(value) for name, value in self._module.state_dict().items()}

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return whole optimizer state on every rank."""
        return pytree.tree_map(gathered, super().optimizer_state(optimizer))

    # Collectives that Lightning asks for.

    def barrier(self, name: str | None = None) -> None:
        """Wait for all ranks."""
        dist.barrier()

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Return the object of rank ``src``."""
        held = [obj]
        dist.broadcast_object_list(held, src)
        return held[0]

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Return the sum over all ranks, or the mean."""
        if not isinstance(tensor, Tensor):
            return tensor
        total = tensor.clone()
        dist.all_reduce(total, group=group)
        is_mean = isinstance(reduce_op, str) and reduce_op.lower() in ("mean", "avg")
        return total / self.world_size if is_mean else total

    @property
    def _module(self) -> LightningModule:
        assert self.lightning_module is not None
        return self.lightning_module


def _rows(batch: Any) -> int:
    """Return the number of rows of a batch's first tensor."""
    leaves = (
        batch.values() if isinstance(batch, Mapping) else (batch,) if isinstance(batch, Tensor) else batch
    )
    return next((len(leaf) for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()), 1)
