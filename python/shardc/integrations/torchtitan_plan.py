"""Derives mesh and plan of a torchtitan model from its sharding configuration and parallel dims."""

from __future__ import annotations

from torch import nn
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
)
from torchtitan.distributed import ParallelDims
from torchtitan.protocols.sharding import ShardingConfig, SpmdLayout

from shardc.diagnostics.integrations import TrainerArgumentRefused
from shardc.frontend.importing.recorder import caller_line
from shardc.options.parallelism import PlanLike

TENSOR = "tp"
SEQUENCE_DIM = 1


def torchtitan_layout(model: nn.Module, parallel_dims: ParallelDims) -> tuple[dict[str, int], PlanLike]:
    """Return ``mesh`` and ``plan`` of ``compile_step`` for a model that torchtitan's ``Config.build`` made.

    This replaces the model's ``parallelize_fn``, which wraps modules: replicas are ``data``, FSDP is
    ``zero3``, and tensor parallelism shards the weights that the model's ``ShardingConfig`` shards::

        mesh, plan = torchtitan_layout(model, parallel_dims)
        step = shardc.compile_step(model, optimizer, batch, loss=loss, mesh=mesh, plan=plan)

    Raises TrainerArgumentRefused for context, pipeline and expert parallelism, and for a weight that is
    sharded otherwise than by columns or rows.
    """
    for name, kind in (("cp", "context"), ("pp", "pipeline"), ("ep", "expert")):
        if (degree := getattr(parallel_dims, name)) > 1:
            raise _refused(
                name, degree, f"shardc does not read torchtitan's {kind} parallelism", "name a plan yourself"
            )
    degrees = {
        "dp_replicate": ("data", parallel_dims.dp_replicate),
        "fsdp": ("zero3", parallel_dims.dp_shard),
        TENSOR: ("tensor", parallel_dims.tp),
    }
    used = {axis: found for axis, found in degrees.items() if found[1] > 1} or {"fsdp": ("data", 1)}
    mesh = {axis: degree for axis, (_, degree) in used.items()}
    text = "*".join(f"{preset}:{axis}" for axis, (preset, _) in used.items())
    return mesh, {text: tensor_styles(model)} if TENSOR in mesh else text


def tensor_styles(model: nn.Module) -> dict[str, ParallelStyle]:
    """Return the effect of ``Module.parallelize`` on the axis ``tp`` as ``parallelize_module`` takes it."""
    found: dict[str, ParallelStyle] = {}
    for path, module in model.named_modules():
        config = getattr(module, "_sharding_config", None)
        if isinstance(config, ShardingConfig) and (style := _style(path, module, config)) is not None:
            found[path] = style
    return found


def _style(path: str, module: nn.Module, config: ShardingConfig) -> ParallelStyle | None:
    """Return the style of one module; None if it shards nothing."""
    cut = _tensor_dim(config.state_shardings.get("weight"))
    if cut is None:
        is_norm = "weight" in config.state_shardings and not isinstance(module, nn.Linear | nn.Embedding)
        return (
            SequenceParallel() if is_norm and _tensor_dim(config.out_src_shardings) == SEQUENCE_DIM else None
        )
    columns = 0 if isinstance(module, nn.Linear) else 1
    if cut not in (0, 1) or not isinstance(module, nn.Linear | nn.Embedding):
        reason = f"a {type(module).__name__} is not a linear layer or embedding sharded by columns or rows"
        raise _refused(path, f"Shard({cut})", reason, "name the shardings of its weights in plan=")
    return ColwiseParallel() if cut == columns else RowwiseParallel()


def _tensor_dim(layout: SpmdLayout | tuple[SpmdLayout, ...] | None) -> int | None:
    """Return the dim that is sharded on the tensor axis."""
    if not isinstance(layout, SpmdLayout):
        return None
    said = {str(axis): placement for axis, placement in layout.per_axis_spmd_types().items()}.get(TENSOR)
    return getattr(said, "dim", None)  # replicated, invariant, varying and partial ones have none


def _refused(argument: str, value: object, reason: str, instead: str) -> TrainerArgumentRefused:
    file, line = caller_line()[0]
    return TrainerArgumentRefused(
        argument=argument, value=value, reason=reason, instead=instead, where=f"{file}:{line}"
    )
