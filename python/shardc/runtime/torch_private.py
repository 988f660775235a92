"""All private names of PyTorch that shardc uses, each with its reason and its public replacement, if any.

``from shardc.runtime.torch_private import FakeTensor`` reads a name of ``NAMES`` from PyTorch when it is
first needed. So slow modules are loaded late, and an artefact runs under a PyTorch that lacks names it does
not need. The functions below read attributes of PyTorch's objects.

No other file names a private part of PyTorch, and none replaces a function of PyTorch.
``test/unit/runtime/test_torch_private.py`` checks this, and lists the names that an installed PyTorch lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch.utils import checkpoint

from .errors import PrivateNameMissing

if TYPE_CHECKING:
    from torch._inductor.output_code import OutputCode as OutputCode
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch._subclasses.functional_tensor import FunctionalTensor as FunctionalTensor
    from torch.autograd.graph import Node
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

F = TypeVar("F", bound=Callable[..., object])
Hook = Callable[[torch.Tensor], Any]


class Name(NamedTuple):
    """Private name: its path in PyTorch (``module:attribute``), its use, and a public replacement."""

    path: str
    why: str
    instead: str = "none yet"


_AOT = "torch._functorch.aot_autograd"
_AOT_PARTS = "torch._functorch._aot_autograd"
_AOT_CACHE = f"{_AOT_PARTS}.autograd_cache"
_AOT_RESULT = f"{_AOT_PARTS}.aot_autograd_result"
_ALIASES = f"{_AOT_PARTS}.runtime_wrappers:_AnalyzeCustomOpInputOutputMode"
_C10D = "torch.distributed.distributed_c10d"
_DISPATCH = "torch.utils._python_dispatch"
_FAKE = "torch._subclasses.fake_tensor"
_FUNCTIONAL = "torch._subclasses.functional_tensor"
_FUNCTIONALIZE = "torch.func.functionalize"
_LAZY = "torch.fx._lazy_graph_module"
_PRIMS = "torch._prims_common"

NAMES = {
    # Operators and graphs
    "OpOverload": Name("torch._ops:OpOverload", "operators in graphs", "type(torch.ops.aten.add.Tensor)"),
    "OpOverloadPacket": Name("torch._ops:OpOverloadPacket", "the same", "type(torch.ops.aten.add)"),
    "DispatchKey": Name("torch._C:DispatchKey", "whether an operator is made of others"),
    "HigherOrderOperator": Name("torch._ops:HigherOrderOperator", "operators that take functions"),
    "pytree": Name("torch.utils._pytree", "flattens batches and arguments", "optree, a package of its own"),
    "LazyGraphModule": Name(f"{_LAZY}:_LazyGraphModule", "a graph that never runs"),
    "use_lazy_graph_module": Name(f"{_LAZY}:_use_lazy_graph_module", "a trace in a fifth less time"),
    "get_decompositions": Name(
        "torch._decomp:get_decompositions", "PyTorch's", "torch.export.default_decompositions"
    ),
    "check": Name("torch:_check", "asserts what a size that depends on values is"),
    "weight_norm": Name("torch:_weight_norm", "what torch.nn.utils.parametrizations.weight_norm calls"),
    "foreach_copy_": Name("torch:_foreach_copy_", "many copies in one launch", "Tensor.copy_ for each"),
    "empty_strided_cpu": Name(
        "torch._C._dynamo.guards:_empty_strided_cpu", "in half the time", "torch.empty_strided"
    ),
    # Tracing
    "FakeTensor": Name(f"{_FAKE}:FakeTensor", "tensors without data"),
    "FakeTensorMode": Name(f"{_FAKE}:FakeTensorMode", "makes them"),
    "DataDependentOutputException": Name(f"{_FAKE}:DataDependentOutputException", "a trace asks for a value"),
    "DynamicOutputShapeException": Name(f"{_FAKE}:DynamicOutputShapeException", "a size that is a value"),
    "UnsupportedFakeTensorException": Name(f"{_FAKE}:UnsupportedFakeTensorException", "ops without a fake"),
    "FunctionalTensor": Name(f"{_FUNCTIONAL}:FunctionalTensor", "what a model sees while it is traced"),
    "FunctionalTensorMode": Name(f"{_FUNCTIONAL}:FunctionalTensorMode", "writes as values", _FUNCTIONALIZE),
    "dispatch_functionalize": Name(f"{_FUNCTIONAL}:dispatch_functionalize", "the same", _FUNCTIONALIZE),
    "TorchDispatchMode": Name(f"{_DISPATCH}:TorchDispatchMode", "counts a program's memory"),
    "disable_current_modes": Name(f"{_DISPATCH}:_disable_current_modes", "real tensors within a trace"),
    "compile_session": Name("torch.compiler:_compile_session_context", "is_compiling is true in a trace"),
    "non_strict_tracing": Name(
        "torch.compiler:_non_strict_tracing_context", "selective checkpointing runs ops again in a trace"
    ),
    "sequence_number": Name("torch.autograd:_get_sequence_nr", "a backward op's forward op: its source line"),
    "current_autograd_node": Name("torch._C:_current_autograd_node", "the same"),
    "functorch_level": Name("torch._C._functorch:maybe_current_level", "whether torch.func transforms"),
    "elementwise_strides": Name(f"{_PRIMS}:compute_elementwise_output_strides", "how ATen lays a result out"),
    "channels_last_strides": Name(
        f"{_PRIMS}:make_channels_last_strides_for", "strides of a shape", "torch.empty(memory_format=)"
    ),
    "suggested_memory_format": Name(
        f"{_PRIMS}:suggest_memory_format", "the format ATen keeps", "Tensor.is_contiguous(memory_format=)"
    ),
    # torch.compile
    "dynamo_config": Name("torch._dynamo.config", "settings under which no trace is kept"),
    "compiled_autograd": Name("torch._dynamo.compiled_autograd", "whether it is on"),
    "TorchDynamoException": Name("torch._dynamo.exc:TorchDynamoException", "is Dynamo's to handle"),
    "aot_autograd": Name("torch._dynamo.backends.common:aot_autograd", "traces both ways; is in the manual"),
    "boxed_nop": Name(
        "torch._dynamo.backends.debugging:boxed_nop", "a graph", "torch.fx.Interpreter, slower"
    ),
    "functorch_config": Name("torch._functorch.config", "AOTAutograd's for a block", "functorch.compile"),
    "inductor_config": Name("torch._inductor.config", "settings that AOTAutograd reads: part of a key"),
    "TracingContext": Name("torch._guards:TracingContext", "which inputs and results CUDA graphs copy"),
    "OutputCode": Name("torch._inductor.output_code:OutputCode", "a program that AOTAutograd can write down"),
    "SerializableCompiler": Name(f"{_AOT}:SerializableAOTDispatchCompiler", "a compiler of such programs"),
    "NotKept": Name(f"{_AOT_CACHE}:BypassAOTAutogradCache", "a program that is not on disk"),
    "Gone": Name(f"{_AOT_CACHE}:FXGraphCacheMiss", "a program that was on disk"),
    "trace_from_disk": Name(f"{_AOT_RESULT}:deserialize_bundled_cache_entry", "a kept trace as a function"),
    "AliasAnalysis": Name(_ALIASES, "under it ATen forgets conjugations (pytorch#198118)"),
    "function_modes": Name(
        "torch.overrides:_get_current_function_mode_stack", "what sees the calls of a layer"
    ),
    "saved_tensor_hooks": Name("torch._C._autograd:_top_saved_tensors_default_hooks", "the same"),
    "any_global_module_hook": Name("torch.nn.modules.module:_has_any_global_hook", "the same"),
    "get_current_dispatch_mode": Name(f"{_DISPATCH}:_get_current_dispatch_mode", "the same"),
    "pop_mode_temporarily": Name(f"{_DISPATCH}:_pop_mode_temporarily", "the same"),
    # Devices and processes
    "storage_uses": Name("torch._C:_storage_Use_Count", "whether what a CUDA graph lent is still held"),
    "set_allocator_settings": Name(
        "torch.cuda.memory:_set_allocator_settings",
        "segments of GPU memory that grow",
        "PYTORCH_ALLOC_CONF in the environment",
    ),
    "symmetric_memory": Name(
        "torch.distributed._symmetric_memory", "small collectives by the GPUs themselves"
    ),
    "default_store": Name(f"{_C10D}:_get_default_store", "signs of life of all ranks"),
    "process_group": Name(f"{_C10D}:_resolve_process_group", "the group of a traced collective"),
    "trace_structured": Name("torch._logging:trace_structured", "plans in TORCH_TRACE, for tlparse"),
    # Functions of PyTorch's classes, called with the object
    "is_zero_tensor": Name(
        "torch:Tensor._is_zerotensor", "gradients without memory, which kernels can't read"
    ),
    "without_torch_functions": Name("torch._C:DisableTorchFunction", "reads tensors past a trace's modes"),
    "without_autocast": Name("torch._C:_DisableAutocast", "measures what is called", "torch.autocast"),
}

GRAPH_FORM = (_AOT_RESULT, "SerializedGraphModule")
"""A backward graph in a kept trace, which compiled autograd reads: its code."""
TRACE_MODULES = (
    *(_AOT_RESULT, f"{_AOT_PARTS}.descriptors", f"{_AOT_PARTS}.runtime_wrappers", f"{_AOT_PARTS}.schemas"),
    *("torch._dynamo.source", "torch._guards"),
)
"""Modules of the dataclasses and enumerations that a kept trace is made of. Instead: none yet."""
TENSOR_MODULES = (_FAKE, _FUNCTIONAL)
"""Modules of types of tensors that a kept trace names."""


def __getattr__(name: str) -> Any:
    """Return the object called ``name``. Raises PrivateNameMissing if the installed PyTorch lacks it."""
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attributes = NAMES[name].path.partition(":")
    try:
        if module.startswith(_AOT_PARTS):
            import_module("torch._dynamo")  # they import each other, which works in this order alone
        found: Any = import_module(module)
        for attribute in filter(None, attributes.split(".")):
            found = getattr(found, attribute)
    except (ImportError, AttributeError) as error:
        raise PrivateNameMissing(
            f"PyTorch {torch.__version__} has no {NAMES[name].path.replace(':', '.')}: {NAMES[name].why}",
            hint=f"instead of it: {NAMES[name].instead}",
        ) from error
    globals()[name] = found
    return found


def optional(name: str) -> Any:
    """Return the object called ``name``; None if the installed PyTorch lacks it."""
    try:
        return __getattr__(name)
    except PrivateNameMissing:
        return None


# Attributes of PyTorch's objects


def schema_of(op: OpOverload) -> torch.FunctionSchema:
    """``OpOverload._schema``: types and names of an operator's parameters and results. Instead: none yet."""
    return op._schema


def direct_call(op: OpOverload) -> Callable[..., object]:
    """``OpOverload._op``: an operator in three quarters of a small call's time. Instead: the operator."""
    return op._op


def storage_address(storage: torch.UntypedStorage) -> int:
    """``UntypedStorage._cdata``: which memory it is, fake or not. Instead: ``data_ptr``, if real."""
    return storage._cdata


def sequence_number_of(node: Node) -> int:
    """``Node._sequence_nr`` of autograd's graph, as ``sequence_number`` counts them. Instead: none yet."""
    return node._sequence_nr()


def uncompiled(model: F) -> F:
    """``OptimizedModule._orig_mod``: the module that ``torch.compile`` was given. Instead: none yet."""
    return getattr(model, "_orig_mod", model)


def gradient_hooks(tensor: torch.Tensor) -> tuple[list[Hook], list[Hook]]:
    """``Tensor._backward_hooks``, ``_post_accumulate_grad_hooks``: in order of their calls. Instead: none."""
    held = tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)
    before, after = (list((hooks or {}).values()) for hooks in held)
    return before, after


MODULE_TABLES = (
    *("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks"),
    *("_backward_hooks", "_backward_pre_hooks"),
)


def module_tables(
    modules: Iterable[torch.nn.Module], names: Iterable[str] = MODULE_TABLES
) -> list[dict[Any, Any]]:
    """``Module._parameters``, ``_forward_hooks`` and others: to see that none changed. Instead: none."""
    return [vars(module)[name] for module in modules for name in names]


def optimizer_hooks(optimizer: torch.optim.Optimizer) -> list[dict[int, Any]]:
    """``Optimizer._optimizer_step_pre_hooks``, ``_optimizer_step_post_hooks``: the same. Instead: none."""
    return [optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks]


def global_optimizer_hooks() -> list[dict[int, Any]]:
    """``torch.optim.optimizer._global_optimizer_pre_hooks`` and ``_post_hooks``: of all. Instead: none."""
    module = import_module(torch.optim.Optimizer.__module__)
    return [module._global_optimizer_pre_hooks, module._global_optimizer_post_hooks]


PARAMETER_MARKS = ("requires_grad", "dtype", "_backward_hooks", "_post_accumulate_grad_hooks")
parameter_marks: Callable[[torch.Tensor], tuple[Any, ...]] = attrgetter(*PARAMETER_MARKS)
"""Attributes of a parameter that must stay while a step compiled from it runs. Instead of its hooks: none."""


def check_input_dim(norm: torch.nn.Module, x: torch.Tensor) -> None:
    """``_check_input_dim``: a batch norm refuses inputs with other dims. Instead: its own forward."""
    norm._check_input_dim(x)  # pyright: ignore[reportCallIssue]


def take_inputs_in_a_list(function: F) -> F:
    """``_boxed_call``: AOTAutograd passes inputs in a list, to be emptied. Instead: none that empties it."""
    function._boxed_call = True  # type: ignore[attr-defined]
    return function


def show(local: torch.Tensor, made: DTensor) -> None:
    """``DTensor._local_tensor``: the tensor itself in a DTensor, not a view of it. Instead: none yet."""
    made._local_tensor = local


def graph_of_form(body: dict[str, object], imports: str) -> Any:
    """``SerializedGraphModule`` of a graph's fields and code, which it runs when compiled autograd asks.

    Instead: none yet.
    """
    from torch.fx.graph_module import reduce_graph_module

    kind = getattr(import_module(GRAPH_FORM[0]), GRAPH_FORM[1])
    made = object.__new__(kind)
    made.fn, made.args = reduce_graph_module, (body, imports)
    return made


def mark_stepped(optimizer: torch.optim.Optimizer) -> None:
    """``Optimizer._opt_called``: schedulers warn unless it has stepped. Instead: a warnings filter."""
    optimizer._opt_called = True  # pyright: ignore[reportAttributeAccessIssue]


# Settings for the duration of a trace, for which PyTorch has no mode. All of them are restored.


@contextmanager
def recomputation_unchecked() -> Iterator[None]:
    """Stop checkpointing from comparing the recomputed tensors, whose symbolic sizes have other names.

    ``torch.utils.checkpoint._allowed_determinism_checks_to_fns``. Instead: ``determinism_check="none"``,
    which only the model itself can pass to ``checkpoint``.
    """
    checks = checkpoint._allowed_determinism_checks_to_fns
    saved = dict(checks)
    checks["default"] = checks["none"]
    try:
        yield
    finally:
        checks.update(saved)


@contextmanager
def distributions_unchecked() -> Iterator[None]:
    """Stop distributions from reading their parameters to validate them.

    ``Distribution._validate_args``, to restore it. Instead: none that returns the default.
    """
    kind = torch.distributions.Distribution
    saved = kind._validate_args
    kind.set_default_validate_args(False)
    try:
        yield
    finally:
        kind.set_default_validate_args(saved)


@contextmanager
def autocast_for_all() -> Iterator[None]:
    """Makes ``torch.autocast("cuda")`` in a model act on the CPU tensors that it is traced with.

    Else it would be ignored, and the program would compute in another precision than the model.

    ``torch.autocast.__init__``. Instead: none, its constructor is seen by no mode.
    """
    original = torch.autocast.__init__

    def init(
        self: torch.autocast, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kw: Any
    ) -> None:
        original(self, "cpu", dtype or torch.get_autocast_dtype(device_type), *args, **kw)

    torch.autocast.__init__ = init
    try:
        yield
    finally:
        torch.autocast.__init__ = original
