"""Where kept frames stand in Dynamo: before it traces a frame for our backend, and after.

PyTorch 2.13 has no place for this: a backend is called when Dynamo has traced, and ``torch._dynamo.package`` finds
traces by a function's name alone and leaves out guards on identity (decision 38). So ``convert_frame._compile``, which
Dynamo calls for a frame that no compiled code fits, is replaced once, when Dynamo loads our backend. For other
backends it calls the function that it replaces. What Dynamo gets for a kept frame is what it would have made itself:
the same bytecode, under guards on this process's values.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from torch._dynamo import convert_frame
from torch._dynamo.cache_size import exceeds_recompile_limit
from torch._dynamo.eval_frame import innermost_backend
from torch._dynamo.types import ConvertFrameReturn, wrap_guarded_code
from torch._functorch._aot_autograd.utils import top_saved_tensors_hooks
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

from shardc.diagnostics.base import ShardcError
from shardc.driver.frames import cache
from shardc.driver.frames.content import NoContent
from shardc.driver.frames.trace import Trace, current
from shardc.driver.settings import Settings
from shardc.driver.trace_cache import is_wanted

_PARAMETERS = (
    "code", "globals", "locals", "builtins", "closure", "compiler_fn", "one_graph", "export", "export_constraints",
    "hooks", "cache_entry", "cache_entries", "cache_entries_for_reasons", "cache_size", "frame", "frame_state",
    "compile_id", "skip", "package", "convert_frame_box",
)  # fmt: skip
"""Of ``convert_frame._compile``. Where PyTorch has others, frames are not kept."""


def keep_frames(backend: Callable[..., Any]) -> None:
    """From now on frames that Dynamo compiles for ``backend`` are kept on disk. Does nothing the second time."""
    real = convert_frame._compile
    signature = inspect.signature(real)
    if hasattr(real, "shardc_real") or tuple(signature.parameters) != _PARAMETERS:
        return

    @wraps(real)
    def compile_(*args: Any, **kwargs: Any) -> ConvertFrameReturn:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        given.arguments["skip"] += 1
        settings = _settings(backend, given.arguments)
        if settings is None:
            return real(*given.args, **given.kwargs)
        return _compile(lambda: real(*given.args, **given.kwargs), _called(given.arguments, settings))

    compile_.shardc_real = real  # type: ignore[attr-defined]
    convert_frame._compile = compile_


def _settings(backend: Callable[..., Any], given: dict[str, Any]) -> Settings | None:
    """The backend's settings, if the frame is for it and may be kept."""
    wrapper = innermost_backend(given["compiler_fn"])
    if getattr(wrapper, "compiler_fn", None) is not backend or set(wrapper.kwargs) - {"options"}:
        return None
    hooks = given["hooks"]
    if (
        given["export"]
        or given["package"]
        or hooks.guard_export_fn
        or hooks.guard_filter_fn
        or hooks.guard_fail_fn
    ):
        return None
    try:
        settings = Settings.of(wrapper.kwargs.get("options") or {})
    except ShardcError:
        return None  # the backend tells the user
    is_limited = exceeds_recompile_limit(given["cache_size"], given["compile_id"])[0]
    return settings if not is_limited and is_wanted(settings) and _is_plain_process() else None


def _is_plain_process() -> bool:
    """Whether nothing is on that changes what functions mean and that another process does not have in the same way."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    modes = torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack()
    transforms = retrieve_all_functorch_interpreters() or torch.autograd.forward_ad._current_level >= 0
    hooks = torch.nn.modules.module._has_any_global_hook() or top_saved_tensors_hooks() is not None
    is_off = os.environ.get("SHARDC_KEEP_FRAMES") == "0" or convert_frame._bytecode_hooks
    return not (distributed or modes or transforms or hooks or is_off)


def _called(given: dict[str, Any], settings: Settings) -> cache.Called:
    return cache.Called(
        code=given["code"],
        scope=given["globals"],
        variables=given["locals"],
        closure=given["closure"],
        settings=settings,
        is_whole=given["one_graph"],
        compile_id=given["compile_id"],
        cache_entries=given["cache_entries"],
    )


def _compile(real: Callable[[], ConvertFrameReturn], called: cache.Called) -> ConvertFrameReturn:
    try:
        name = cache.name_of(called)
    except NoContent:
        return real()
    if (found := cache.find(called, name)) is not None:
        return wrap_guarded_code(found)
    trace = Trace()
    token = current.set(trace)
    compile_frame = convert_frame.compile_frame

    def read(*args: Any, **kwargs: Any) -> Any:
        output = compile_frame(*args, **kwargs)
        trace.read(output.tracer_output.output_graph, called.variables, called.scope)
        return output

    try:
        with patch.object(convert_frame, "compile_frame", read):
            result = real()
    finally:
        current.reset(token)
    if result.guarded_code is not None:
        cache.keep(called, name, trace, result.guarded_code.code)
    return result
