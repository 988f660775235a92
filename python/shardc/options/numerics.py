"""Options of precision, random numbers and proofs."""

from dataclasses import dataclass
from typing import Literal, get_args

from shardc.options.field import Group, Hint, option

Rounding = Literal["fused", "eager"]
"""Where chains of 16-bit floats are rounded: at a kernel's results, or after each op as in PyTorch."""
ROUNDINGS: tuple[str, ...] = get_args(Rounding)


def dtype_name(dtype: object) -> str:
    """Return the name of a dtype, such as ``bfloat16`` for ``torch.bfloat16``."""
    return dtype if isinstance(dtype, str) else str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Numerics(Group):
    """Options that affect the numbers that a step computes.

    Example:
        >>> numerics = shardc.Numerics(clip_grad_norm=1.0, autocast="bfloat16", seed=3)
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss, numerics=numerics)
    """

    clip_grad_norm: float | None = option(
        None,
        "Clip the gradients to this global 2-norm, such as 1.0, taken over clip_parameters.",
        Hint("a number above 0"),
        above=0,
        was="clip",
        only="compile_step",
    )
    clip_parameters: Literal["model", "optimizer"] = option(
        "model",
        "Parameters whose gradients form the norm of clip_grad_norm: all of the model's that "
        "require one (model), as torch.nn.utils.clip_grad_norm_(model.parameters(), n) does after "
        "model.zero_grad(), or only the optimizer's (optimizer). They differ if the optimizer "
        "holds a part of the parameters.",
        only="compile_step",
    )
    autocast: Literal["bfloat16", "float16"] | None = option(
        None,
        "Dtype, bfloat16 or float16, of the ops that torch.autocast runs in it.",
        Hint("torch.bfloat16, torch.float16 or None", "as in autocast=torch.bfloat16"),
        convert=dtype_name,
        only="compile_step",
    )
    rounding: Rounding = option(
        "fused",
        "Where kernels round chains of 16-bit floats: at their results (fused), or after each op "
        "as PyTorch does (eager).",
        was="numerics",
    )
    seed: int = option(
        0,
        "Seed of dropout and other random numbers.",
        Hint("a whole number from -2**62 to 2**62"),
        at_least=-(2**62),
        at_most=2**62,
        only="compile_step",
    )
    random: Literal["counter", "torch"] = option(
        "counter",
        "Source of random numbers: compile_step's generator, seeded at each call (counter), or "
        "PyTorch's own (torch).",
        only="torch.compile",
    )
    verify: bool = option(
        False,
        "Prove the step equal to the single-device step on the example batch, in f64 to 1e-9 and "
        "in its own precision.",
        only="compile_step",
    )
    reduce_dtype: Literal["float32"] | None = option(
        None,
        "Dtype in which 16-bit gradients are summed over devices and micro-batches: float32, as "
        "with FSDP's MixedPrecisionPolicy(reduce_dtype=torch.float32).",
        Hint("torch.float32 or None", "as in reduce_dtype=torch.float32"),
        convert=dtype_name,
        only="compile_step",
    )
