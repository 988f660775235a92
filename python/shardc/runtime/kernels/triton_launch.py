"""Fast launch of Triton's compiled kernels, which bypasses Triton's Python code.

Triton's own launch (``JITFunction.run``) binds and inspects every argument, and builds strings of them, to
find the compiled kernel. A :class:`Launcher` uses that only for the first call of a kind. It keeps the
compiled kernel and starts it directly from then on, by a function generated for the kernel's arguments. Two
calls are of the same kind if Triton uses one compiled kernel for both: same device, same constants, and
integers that agree in being 1, a multiple of 16, or wider than 32 bits.

Triton's own launch is always used for tensors whose address is no multiple of 16, for Triton versions that
this file does not know, on AMD's GPUs (where kernels differ in more properties), and while a profiler hooks
launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    from triton.runtime import JITFunction

KNOWN = ((3, 6),)
"""Versions of Triton whose launch works as :func:`_direct` assumes."""
_OPTIONS = ("num_warps", "num_stages")
Ints = tuple[int, ...]
Start = tuple[Callable[..., object], tuple[object, ...]]

_DIRECT = """
def launch(grid, {names}, *, {constants}):
    {addresses}
    device = current_device()
    found = None
    if not ({all_addresses}) & 15 and not enter.calls and not leave.calls:
        found = kernels.get((device, {key}))
    if found is None:
        return ordinary(device, ({key},), not ({all_addresses}) & 15, grid, ({names},), ({constants},))
    start, before = found
    x, y, z = grid if len(grid) == 3 else (*grid, 1, 1)[:3]
    start(x, y, z, current_stream(device), *before, {given})
"""


def with_launchers(module: ModuleType) -> ModuleType:
    """Return a module of generated kernels whose ``launch`` and ``launch_all`` start kernels directly.

    Functions that kernels call are left to Triton. If this Triton's launch is not known, so are all kernels.
    """
    import triton

    if not is_known():
        return module
    host = SimpleNamespace(**vars(triton) | {"cdiv": _cdiv})
    kernels = {n: Launcher(f) for n, f in vars(module).items() if isinstance(f, triton.runtime.JITFunction)}
    names = vars(module) | kernels | {"triton": host}
    for name in ("launch", "launch_all"):
        function = getattr(module, name, None)
        if function is not None:
            setattr(module, name, FunctionType(function.__code__, names, name, function.__defaults__))
    return module


def _cdiv(count: int, block: int) -> int:
    """Return the ceiling division; ``triton.cdiv`` takes as long as the rest of a launch."""
    return -(-count // block)


def is_known() -> bool:
    """Return True if the launch of the installed Triton is known."""
    return triton_version() in KNOWN and torch.version.hip is None


def triton_version() -> tuple[int, ...]:
    """Return the first two numbers of the installed Triton's version."""
    import triton

    return tuple(int(n) for n in triton.__version__.split("+")[0].split(".")[:2])


class Launcher:
    """Launcher of a kernel: ``launcher[grid](*tensors_and_integers, **constants)``, as in Triton."""

    def __init__(self, function: JITFunction) -> None:
        self._function = function
        self._call: Callable[..., None] | None = None

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def start(*given: Tensor | int, **constants: int) -> None:
            if self._call is None:
                self._call = _written(self._function, given, tuple(constants))
            self._call(grid, *given, **constants)

        return start


def _written(
    function: JITFunction, given: Sequence[Tensor | int], constants: tuple[str, ...]
) -> Callable[..., None]:
    """Generate the function that starts a kernel with arguments of the types of ``given``."""
    from triton import knobs
    from triton.runtime import driver

    names = [f"a{n}" for n in range(len(given))]
    tensors = [n for n, value in zip(names, given, strict=True) if isinstance(value, Tensor)]
    sizes = [n for n in names if n not in tensors]
    kernels: dict[Ints, Start] = {}

    def ordinary(
        device: int, key: Ints, aligned: bool, grid: Ints, values: tuple[Tensor | int, ...], numbers: Ints
    ) -> None:
        """Launch through Triton, and keep the compiled kernel."""
        compiled = function[grid](*values, **dict(zip(constants, numbers, strict=True)))
        if aligned and compiled is not None:
            kernels[device, *key] = _direct(compiled)

    key = [f"({n} == 1) + 2 * ({n} & 15 == 0) + 4 * ({n} > 0x7FFFFFFF)" for n in sizes] + list(constants)
    parameters = [str(p.name) for p in function.params]  # constants are at their positions in the signature
    place = dict(zip([n for n in parameters if n not in constants], names, strict=True))
    passed = [place.get(n, n) for n in parameters if n not in _OPTIONS]
    text = _DIRECT.format(
        names=", ".join(names),
        constants=", ".join(constants),
        addresses="; ".join(f"p{n} = {n}.data_ptr()" for n in tensors) or "pass",
        all_addresses=" | ".join(f"p{n}" for n in tensors) or "0",
        key=", ".join(key),
        given=", ".join(f"p{n}" if n in tensors else n for n in passed),
    )
    active, hooks = cast("Any", driver.active), knobs.runtime
    found = dict[str, Any](ordinary=ordinary, kernels=kernels)
    found |= {"current_device": active.get_current_device, "current_stream": active.get_current_stream}
    found |= {"enter": hooks.launch_enter_hook, "leave": hooks.launch_exit_hook}
    exec(compile(text, f"<launch of {function.__name__}>", "exec"), found)
    return found["launch"]


def _direct(compiled: Any) -> Start:
    """Return the function that starts a compiled kernel, and its arguments between stream and kernel's own.

    It is the C function itself, unless the kernel needs scratch memory at each launch, as tensor descriptors
    do. Then it is Triton's launcher, which allocates that memory.
    """
    start, more = compiled.run, (compiled.packed_metadata, None, None, None)
    if start.global_scratch_size or start.profile_scratch_size:
        return start, (compiled.function, *more)
    inner = (start.launch_cooperative_grid, start.launch_pdl, None, None)
    return start.launch, (compiled.function, *inner, *more)
