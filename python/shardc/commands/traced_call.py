"""One call of a function under ``torch.compile(function, backend="shardc")``, for what is reported of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.fx import GraphModule

from shardc.dynamo.backend import shardc_backend
from shardc.runtime.torch_private import functorch_config, uncompiled


def call_compiled(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    options: Mapping[str, object] | None,
) -> None:
    """Compile ``function`` with ``options`` and call it once, backward compiled at once where a result needs
    gradients.
    """

    def backend(graph: GraphModule, example_inputs: Sequence[object]) -> Callable[..., object]:
        return shardc_backend(graph, example_inputs, options=options)

    with functorch_config.patch(force_non_lazy_backward_lowering=True):
        torch.compile(uncompiled(function), backend=backend, dynamic=False)(*args, **kwargs)
