"""Frames on disk: found by what names them, used if all their conditions hold, broken ones removed."""

from __future__ import annotations

import logging
import pickle
import sys
import types
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._dynamo import config, convert_frame, pgo
from torch._dynamo.types import GuardedCode
from torch._dynamo.utils import CleanupManager, counters, dynamo_timed, orig_code_map
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.autograd_cache import FXGraphCacheMiss
from torch._guards import CompileId

from shardc.backends.cpu import cache as disk
from shardc.diagnostics.dynamo import KeptFrameBroken, KeptFrameNotWritten, KeptFrameWarning
from shardc.driver.frames.codes import has_set_in_order, hidden_builtins, nested_codes
from shardc.driver.frames.conditions import Frame, conditions
from shardc.driver.frames.content import PLAIN, Contents, NoContent, digest
from shardc.driver.frames.entry import Entry, installed_modules, serialized
from shardc.driver.frames.installed import is_of_versions
from shardc.driver.frames.trace import Trace
from shardc.driver.program_cache import versions
from shardc.driver.settings import Settings
from shardc.driver.trace_cache import surroundings

log = logging.getLogger(__name__)

SLOTS = 4
"""Frames of one name that are kept: of models that differ in nothing but a constant, say."""


@dataclass(frozen=True)
class Called:
    """A frame that Dynamo is to compile: its code, globals, variables and closure, and what is compiled of it."""

    code: types.CodeType
    scope: dict[str, Any]
    variables: dict[str, Any]
    closure: Any
    settings: Settings
    is_whole: bool
    """``fullgraph=True``: a graph may not break."""
    compile_id: CompileId
    cache_entries: list[Any]


def name_of(called: Called) -> str:
    """A hash of what a frame's trace depends on beside its guards, and of the kinds of its values, to find it by."""
    contents = Contents()
    parts = [
        contents.of(called.code), str(hidden_builtins(called.code, called.scope)), str(called.scope.get("__name__")), str(called.settings), repr(versions()),
        sys.version, str(called.is_whole), repr(_installed()), _settings_of(config), _settings_of(functorch_config),
        repr(convert_frame.initial_global_state.__getstate__()), str(torch.utils._device.CURRENT_DEVICE),
        str((torch.cuda.is_available(), torch.accelerator.is_available(), torch._C._get_cublas_allow_tf32())),
        str({name: _kind(value) for name, value in called.variables.items()}),
    ]  # fmt: skip
    return digest(parts)


def _settings_of(module: Any) -> str:
    contents = Contents()
    found = module.get_config_copy()
    return str([(name, _setting(contents, found[name])) for name in sorted(found)])


def _setting(contents: Contents, value: Any) -> Any:
    if isinstance(value, dict):
        return [_setting(contents, part) for item in value.items() for part in item]
    if isinstance(value, set | frozenset):
        return sorted(contents.or_type(item) for item in value)
    return contents.or_type(value)


def _installed() -> list[str]:
    """The packages that can be imported, with versions: functions that ask for one are traced as what they return."""
    folders = (Path(folder or ".") for folder in dict.fromkeys(sys.path))
    return sorted(str(p) for folder in folders if folder.is_dir() for p in folder.glob("*.dist-info"))


def _kind(value: Any, depth: int = 4) -> str:
    """Enough of a value to tell frames apart by; whether they are the same, conditions say."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}{value.device}{value.requires_grad}"
    if isinstance(value, torch.nn.Module):
        parts = (f"{name}{_kind(p)}" for name, p in value.named_parameters())
        return f"{type(value).__qualname__}{value.training}{digest(parts)}"
    if type(value) in PLAIN:
        return repr(value)
    if isinstance(value, types.MethodType):
        return f"{value.__qualname__} {_kind(value.__self__, depth)}"
    if type(value) in (list, tuple) and depth:
        return str([_kind(part, depth - 1) for part in value])
    if type(value) is dict and depth:
        return str([(str(key), _kind(part, depth - 1)) for key, part in value.items()])
    return getattr(value, "__qualname__", type(value).__qualname__)


def find(called: Called, name: str) -> GuardedCode | None:
    """The frame's compiled code, if one is kept whose conditions hold. Warns KeptFrameWarning of one that is broken."""
    for path, content in filter(None, map(disk.read, _files(name))):
        try:
            entry = Entry.of_bytes(content)
            frame = Frame(called.variables, called.scope)
            if _holds(entry, frame, called):
                with dynamo_timed("shardc_kept_frame", phase_name="entire_frame_compile"):
                    return _compiled(entry, frame, called)
        except FXGraphCacheMiss as gone:
            log.debug("%s is of no use: %s", path.name, gone)
            path.unlink(missing_ok=True)
        except Exception as error:
            log.debug("%s cannot be used", path.name, exc_info=True)
            path.unlink(missing_ok=True)
            text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            warnings.warn(str(KeptFrameBroken(file=path, error=text)), KeptFrameWarning, stacklevel=2)
    return None


def _files(name: str) -> list[str]:
    return [f"frame-{name}-{slot}.pickle" for slot in range(SLOTS)]


def _holds(entry: Entry, frame: Frame, called: Called) -> bool:
    if not entry.import_into(called.scope):
        return False
    asked = zip(entry.conditions, entry.answers, strict=True)
    for condition, expected in asked:
        try:
            (found,) = frame.answers([condition])
        except Exception as reason:  # reading a value of another frame may raise anything
            found = repr(reason)
        if found != expected:
            log.debug("a kept frame is not used: %s of %s", condition[1], condition[0].name)
            return False
    return (
        surroundings([frame.value(source) for source in entry.inputs], called.settings) == entry.surroundings
    )


def _compiled(entry: Entry, frame: Frame, called: Called) -> GuardedCode:
    function = entry.function()
    code, hooks = entry.install(called.scope, function)
    try:
        state = convert_frame.initial_global_state
        guards = entry.guards(frame, called.code, state, called.cache_entries)
    except Exception:
        for hook in hooks:
            hook()
        raise
    CleanupManager.instance[code] = hooks
    orig_code_map[code] = called.code
    convert_frame.output_codes.add(code)
    seen = _seen_sizes(called)
    for name, size in entry.seen.items():
        seen[name] |= size
    counters["shardc"]["frame_hit"] += 1
    return GuardedCode(code, guards, called.compile_id, f"Torch-Compiled Region: {called.compile_id}")


def _seen_sizes(called: Called) -> Any:
    """What Dynamo remembers of the sizes of a frame's values, by which it finds those that change."""
    return pgo.get_code_state()[pgo.CodeId.make(called.code, called.closure)].automatic_dynamic


def keep(called: Called, name: str, trace: Trace, code: types.CodeType) -> None:
    """Keeps what Dynamo traced for later processes, if it means the same there. Warns KeptFrameWarning if it fails."""
    try:
        content = _entry(called, trace, code).to_bytes()
    except (NoContent, pickle.PicklingError) as reason:
        log.debug("the frame %s is not kept: %s", called.code.co_qualname, reason)
        counters["shardc"]["frame_not_kept"] += 1
        return
    except Exception as error:  # the user's model runs all the same
        log.debug("the frame %s is not kept", called.code.co_qualname, exc_info=True)
        counters["shardc"]["frame_not_kept"] += 1
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        warnings.warn(
            str(KeptFrameNotWritten(function=called.code.co_qualname, error=text)),
            KeptFrameWarning,
            stacklevel=2,
        )
        return
    files = _files(name)
    free = [file for file in files if disk.find(file) is None]
    disk.keep(free[0] if free else files[len(content) % SLOTS], content)
    counters["shardc"]["frame_kept"] += 1


def _entry(called: Called, trace: Trace, code: types.CodeType) -> Entry:
    if len(trace.graphs) != 1 or not (trace.is_static and trace.graphs[0].is_static):
        raise NoContent("not one graph of fixed sizes")
    (graph,) = trace.graphs
    result = graph.result()
    frame, asked = Frame(called.variables, called.scope), conditions(trace.guards)
    answers = list(frame.answers(asked))
    if frame.contents.constants:
        raise NoContent(f"results that are taken for constants: {frame.contents.constants}")
    _check_codes(trace.codes, {*frame.contents.codes, *nested_codes(called.code)})
    return Entry(
        conditions=asked,
        answers=answers,
        key_order=trace.key_order,
        sizes=trace.sizes,
        bytecode=serialized(code),
        program=graph.name,
        installed=installed_modules(trace.installed - {graph.name, trace.builtins}, called.scope),
        imports=trace.imports,
        builtins=trace.builtins,
        inputs=graph.inputs,
        surroundings=graph.surroundings,
        seen=dict(_seen_sizes(called)),
        result=result,
    )


def _check_codes(traced: Iterable[types.CodeType], known: set[types.CodeType]) -> None:
    """Raises NoContent if Dynamo traced through a function that no condition has the content of, and that is not
    Python's or PyTorch's, or through one with a set whose order counts."""
    for code in traced:
        if has_set_in_order(code):
            raise NoContent(f"a set of constants in {code.co_qualname} of {code.co_filename}")
        if code not in known and not is_of_versions(code.co_filename):
            raise NoContent(f"nothing leads to {code.co_qualname} of {code.co_filename}")
