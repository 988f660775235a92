"""Definition of the runtime's own operators in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

Work = Callable[..., object]


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which operators accumulate."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def define(
    name: str, schema: str, run: Work, fake: Work, overloads: Mapping[str, Work] | None = None
) -> bool:
    """Define ``shardc::name`` and its ``overloads``.

    Return False if another copy of the caller did so before.
    """
    if hasattr(torch.ops.shardc, name):
        return False
    for overload, function in {"": run, **(overloads or {})}.items():
        whole = f"shardc::{name}.{overload}" if overload else f"shardc::{name}"
        torch.library.define(whole, schema, tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.impl(whole, "CompositeExplicitAutograd", function)
        torch.library.register_fake(whole, fake)
    return True
