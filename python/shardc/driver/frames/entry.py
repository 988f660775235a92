"""What is kept of a frame: its conditions, the bytecode that Dynamo wrote for it, and AOTAutograd's result for its
graph, which names our programs (``graph_program.py``).
"""

from __future__ import annotations

import copyreg
import dataclasses
import io
import pickle
import sys
import types
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo.bytecode_transformation import unique_id
from torch._dynamo.guards import CheckFunctionManager
from torch._dynamo.output_graph import OutputGraphCommon, OutputGraphGuardsState, get_builtins_dict
from torch._dynamo.package import SerializedCode
from torch._dynamo.source import GlobalSource
from torch._dynamo.utils import CleanupHook
from torch._functorch._aot_autograd.aot_autograd_result import BundledAOTAutogradResult
from torch._functorch._aot_autograd.autograd_cache import create_fx_config
from torch._guards import GuardsSet, Source, TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._ordered_set import OrderedSet

from shardc.driver.frames.conditions import Condition, Frame, guards
from shardc.driver.frames.content import PLAIN, TORCH, NoContent

BUILTINS = "__shardc_builtins"
"""The builtins, among the globals of frames that are kept."""


@dataclass(frozen=True)
class Entry:
    """A frame as it is written to disk.

    ``answers`` are those that its values gave to ``conditions``, ``key_order`` the dicts whose order counts,
    ``sizes`` those of tensors. ``bytecode`` reads the globals ``program`` (the graph's function), ``installed`` (modules, by a
    name of Dynamo's), ``imports`` (modules, by a name that guards use too) and ``builtins``. ``inputs`` are the graph's,
    ``surroundings`` a hash of what else its program depends on. ``seen`` is what Dynamo remembers of sizes, to find
    those that change.
    """

    conditions: list[Condition]
    answers: list[bytes]
    key_order: list[Source]
    sizes: dict[Source, Any]
    bytecode: SerializedCode
    program: str
    installed: dict[str, str]
    imports: dict[str, str]
    builtins: str | None
    inputs: list[Source]
    surroundings: str
    seen: dict[str, Any]
    result: BundledAOTAutogradResult[Any]

    def to_bytes(self) -> bytes:
        """Raises whatever pickle raises for what cannot be kept."""
        written = io.BytesIO()
        pickler = pickle.Pickler(written, protocol=pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = copyreg.dispatch_table | {GlobalSource: self._source}
        pickler.dump(self)
        return written.getvalue()

    def _source(self, source: GlobalSource) -> tuple[type[GlobalSource], tuple[str]]:
        """Dynamo numbers its names of the builtins, and of modules: the next process gives this one's to others."""
        name = source.global_name
        if name in self.installed:
            return GlobalSource, (_stable_name(self.installed[name]),)
        return GlobalSource, (BUILTINS if name == self.builtins else name,)

    @staticmethod
    def of_bytes(content: bytes) -> Entry:
        return pickle.loads(content)

    def import_into(self, scope: dict[str, Any]) -> bool:
        """Puts the modules and the builtins among a frame's globals. False if a name stands for something else here."""
        for name, module in self.imports.items():
            if (
                module not in sys.modules
                or scope.setdefault(name, sys.modules[module]) is not sys.modules[module]
            ):
                return False
        for module in self.installed.values():
            if module not in sys.modules:
                return False
            scope[_stable_name(module)] = sys.modules[module]
        scope[BUILTINS] = get_builtins_dict(scope)
        return True

    def function(self) -> Any:
        """The graph's function. Raises FXGraphCacheMiss where a program is gone."""
        self.result.guards_expr = None  # of symbolic sizes, of which there are none
        context = TracingContext(FakeTensorMode(shape_env=ShapeEnv()))
        with tracing(context):
            run = self.result.wrap_post_compile([], self.result.sanitized_aot_config, create_fx_config())

        def forward(*inputs: Any) -> Any:
            return run(list(inputs))

        return torch._dynamo.disable(forward, reason="do not trace Dynamo-compiled graph")

    def guards(self, frame: Frame, code: types.CodeType, state: Any, cache_entries: list[Any]) -> Any:
        """Dynamo's guards, on the values of ``frame`` and checked on it.

        ``code`` is the frame's, ``state`` PyTorch's global state when it began, ``cache_entries`` what is compiled of
        it.
        """
        graph = OutputGraphGuardsState(
            local_scope=frame.variables,
            global_scope=frame.scope,
            torch_function_mode_stack=[],
            guard_on_key_order=OrderedSet(self.key_order),
            input_source_to_sizes_strides=self.sizes,
            dual_level=torch.autograd.forward_ad._current_level,
            functorch_layers=[],
            current_device=torch.utils._device.CURRENT_DEVICE,
            global_state_guard=state,
            _guards=GuardsSet(OrderedSet(guards(self.conditions))),
            _aotautograd_guards=[],
            skip_guards_check=True,  # below: Dynamo times its check too, for a log
            name_of_builtins_dict_key_in_fglobals=BUILTINS if self.builtins else None,
        )
        manager = CheckFunctionManager(code, OutputGraphCommon(graph), cache_entries).guard_manager
        if not manager.check(frame.variables):
            raise AssertionError(
                f"guards do not hold that were made here: {manager.check_verbose(frame.variables)}"
            )
        return manager

    def install(self, scope: dict[str, Any], function: Any) -> tuple[types.CodeType, list[CleanupHook]]:
        """The bytecode, with names of its own for what it reads, and what takes them away when it is gone."""
        names = {name: unique_id(name.split("_")[0] or "__shardc", with_uuid=True) for name in self.installed}
        names[self.program] = unique_id("__compiled_fn", with_uuid=True)
        names |= {self.builtins: BUILTINS} if self.builtins else {}
        values = {names[name]: sys.modules[module] for name, module in self.installed.items()}
        values[names[self.program]] = function
        hooks = [CleanupHook.create(scope, name, value) for name, value in values.items()]
        return SerializedCode.to_code_object(_renamed(self.bytecode, names)), hooks


def _stable_name(module: str) -> str:
    """Of a module that Dynamo installed, among the globals of frames that are kept: guards may read it."""
    return f"__shardc_{module}"


def _renamed(code: SerializedCode, names: dict[str, str]) -> SerializedCode:
    constants = (_renamed(c, names) if isinstance(c, SerializedCode) else c for c in code.co_consts)
    globals_ = tuple(names.get(name, name) for name in code.co_names)
    return dataclasses.replace(code, co_consts=tuple(constants), co_names=globals_)


def serialized(code: types.CodeType) -> SerializedCode:
    """Raises NoContent for bytecode with an object in it that another process lacks."""
    _check(code)
    return SerializedCode.from_code_object(code)


def _check(value: Any) -> None:
    if isinstance(value, types.CodeType):
        value = value.co_consts
    if type(value) in (tuple, frozenset):
        for part in value:
            _check(part)
    elif type(value) not in PLAIN and type(value) not in TORCH:
        raise NoContent(f"{type(value).__qualname__} in bytecode")


def installed_modules(names: set[str], scope: dict[str, Any]) -> dict[str, str]:
    """The modules among the globals ``names``. Raises NoContent if there is anything else."""
    found = {}
    for name in sorted(names):
        value = scope[name]
        if not isinstance(value, types.ModuleType) or sys.modules.get(value.__name__) is not value:
            raise NoContent(f"the global {name}")
        found[name] = value.__name__
    return found
