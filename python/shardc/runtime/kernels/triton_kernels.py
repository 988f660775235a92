"""Calls of Triton kernels of ``backends/triton``, from a folder with a Python module for each kernel.

``Modules(folder).kernel(name, outputs=[(shape, dtype), ...])`` returns a function of tensors, as
:meth:`shardc.runtime.kernels.library.Library.kernel` does for CPUs. Kernels run on the current stream of the
tensors' device. Under ``TRITON_INTERPRET=1`` they run in Triton's interpreter, on tensors of the CPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from ..cuda_graph import check_index, is_capturing, on_device
from ..environment import TRITON_INTERPRET
from ..errors import RuntimeFailure
from ..python_file import imported_file
from .bad_modules import BadModules
from .kernel_call import Batch, Checks, Kernel, Member, Outputs, Shape
from .triton_binaries import offer
from .triton_launch import triton_version, with_launchers

OLDEST = (3, 6)
"""Oldest Triton version that runs generated modules."""
CACHE = "cache"
"""Folder of binaries beside the modules, with a subfolder for each key of Triton's own cache."""

Table = tuple[Tensor, Tensor, bool]


class BadTriton(RuntimeFailure):
    """Triton is missing or too old for the kernels of an artefact."""


class BadDriver(RuntimeFailure):
    """The GPU's driver cannot load the output of Triton's assembler."""


class Modules:
    """Folder of modules. Each is imported when a program first binds its kernel.

    Raises:
        BadTriton: Triton does not import, or is older than the modules need.
        BadDriver: The driver of this machine's GPU is older than Triton's assembler.
    """

    def __init__(self, folder: str | Path) -> None:
        check_triton()
        self.folder, self.device = Path(folder), kernel_device()
        if not interprets():
            check_driver()
            offer(self.folder / CACHE)

    def kernel(
        self, name: str, outputs: Outputs, size: int | None = None, checks: Checks | None = None
    ) -> Kernel:
        """Return the kernel ``name``. Raises BadModules if it is absent or has other outputs."""
        return caller(self._module(name), outputs, checks or {}, self.device, size)

    def batch(self, name: str, members: Sequence[Member]) -> Batch:
        """Return the flat kernel ``name`` as a function of tuples of tensors, with one launch for all."""
        return batch_caller(self._module(name), [outputs for _, outputs in members])

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Allocate a result that an ATen op writes."""
        return torch.empty(shape, dtype=dtype, device=self.device)

    def workspace_bytes(self, name: str, sizes: Sequence[int] = ()) -> int:
        """Return 0: kernels use only on-chip memory as workspace."""
        return 0

    @cache  # noqa: B019  (as many as the program has kernels)
    def _module(self, name: str) -> ModuleType:
        path = self.folder / f"{name}.py"
        if not (name.isidentifier() and path.is_file()):  # a name such as ../../other leaves the folder
            raise BadModules(f"there is no kernel {name!r}", str(path), "compile the artefact again")
        module = imported_file(f"shardc_kernels.{name}", path)
        return module if interprets() else with_launchers(module)


def interprets() -> bool:
    """Return True if kernels run in Triton's interpreter."""
    return TRITON_INTERPRET.get()


def kernel_device() -> torch.device:
    """Return the kind of device whose tensors kernels take."""
    return torch.device("cpu" if interprets() else "cuda")


def check_triton() -> None:
    """Raise BadTriton unless a Triton is installed that can run generated modules."""
    hint = f"pip install 'triton>={'.'.join(map(str, OLDEST))}'"
    try:
        import triton
    except ImportError as error:
        raise BadTriton(f"Triton cannot be imported: {error}", hint=hint) from None
    if triton_version() < OLDEST:
        raise BadTriton(f"Triton {triton.__version__} is too old for these kernels", hint=hint)


def check_driver() -> None:
    """Raise BadDriver if this machine's NVIDIA driver cannot load the output of Triton's assembler."""
    if torch.version.cuda is None or not torch.cuda.is_available():
        return
    lacking = lacking_cuda(driver_version(), torch.cuda.get_device_capability() >= (10, 0))
    if lacking is not None:
        what = "the GPU's driver is for CUDA {}; these kernels need one for {}".format(*lacking)
        raise BadDriver(what, hint="install a newer driver, or a Triton that comes with an older assembler")


def lacking_cuda(driver: int, is_late: bool = False) -> tuple[str, str] | None:
    """Return the CUDA versions of the driver and of Triton's assembler; None if the driver is new enough.

    ``driver``: the driver's CUDA version, such as 12040 for 12.4. ``is_late``: True for a GPU of capability
    10 or more, for which Triton has another assembler. A driver runs machine code of all CUDA versions with
    the same major number.
    """
    from triton import knobs

    needed = (knobs.nvidia.ptxas_blackwell if is_late else knobs.nvidia.ptxas).version
    if driver // 1000 >= int(needed.partition(".")[0]):
        return None
    return f"{driver // 1000}.{driver % 1000 // 10}", needed


def driver_version() -> int:
    """Return the CUDA version of the NVIDIA driver: 12040 for CUDA 12.4. PyTorch has no function for it."""
    found = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(found))
    return found.value


def caller(
    module: ModuleType, outputs: Outputs, checks: Checks, device: torch.device, size: int | None = None
) -> Kernel:
    """Return a function that calls ``module.launch``, generated for its number of tensors.

    ``size``: number of elements, for a flat kernel. Unless captured, ``checks`` wait for the device.
    """
    new = {n: output for n, output in enumerate(outputs) if isinstance(output, tuple)}
    if len(new) != module.OUTPUTS:
        raise BadModules(f"kernel {module.__name__!r} has {module.OUTPUTS} outputs, not {len(new)}")
    read = [f"a{n}" for n in range(module.INPUTS)]
    numbers = [f"n{n}" for n in range(getattr(module, "SIZES", 0))]
    sizes = numbers if size is None else [str(size)]
    on = f"{read[0]}.device" if read else "device"
    names = dict[str, object](launch=module.launch, empty=torch.empty, device=device, check=check_index)
    lines = [f"if not {a}.is_contiguous(): {a} = {a}.contiguous()" for a in read]
    for n, (shape, dtype) in new.items():
        names[f"dtype{n}"] = dtype
        lines.append(f"r{n} = empty(({''.join(f'{size}, ' for size in shape)}), dtype=dtype{n}, device={on})")
    lines.append(f"launch({', '.join([*read, *(f'r{n}' for n in new), *sizes])})")
    for n, message in checks.items():
        names[f"message{n}"] = message
        lines.append(f"check(r{n}, message{n})")
    results = [read[output] if isinstance(output, int) else f"r{n}" for n, output in enumerate(outputs)]
    body = "\n".join(f"    {line}" for line in [*lines, f"return ({''.join(f'{r}, ' for r in results)})"])
    text, found = f"def call({', '.join([*read, *numbers])}):\n{body}\n", dict[str, Kernel]()
    exec(compile(text, "<call of a kernel>", "exec"), names, found)
    return found["call"]


def batch_caller(module: ModuleType, members: Sequence[Outputs]) -> Batch:
    """Return a function that calls ``module.launch_all`` once for several tuples of tensors.

    The addresses are in a table on the device, which is reused while they stay the same. A capture has its
    own table.
    """
    kept: list[int] = []
    tables: list[Table] = []

    def call(*given: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        rows, results = [], []
        for outputs, tensors in zip(members, given, strict=True):
            read = [t if t.is_contiguous() else t.contiguous() for t in tensors]
            made = [read[o] if isinstance(o, int) else _new(o, read[0].device) for o in outputs]
            rows.append([*read, *(t for t, o in zip(made, outputs, strict=True) if not isinstance(o, int))])
            results.append(tuple(made))
        addresses = [t.data_ptr() for row in rows for t in row]
        if is_capturing() or kept != addresses:
            tables[:], kept[:] = _tables(module, rows), addresses
        for table in tables:
            module.launch_all(*table)
        return results

    return call


def _new(output: tuple[Shape, torch.dtype], device: torch.device) -> Tensor:
    shape, dtype = output
    return torch.empty([n for n in shape if isinstance(n, int)], dtype=dtype, device=device)


def _tables(module: ModuleType, rows: Sequence[Sequence[Tensor]]) -> list[Table]:
    """Return tables with the first program, element count and addresses of each tuple of tensors.

    Each table also has the tuple of each program. One table is for tuples whose addresses and numbers of
    elements are multiples of 16, which kernels read 16 bytes at a time; another table is for the rest.
    """
    made, device = [], rows[0][0].device
    numbers = [[max(t.numel() for t in row if t.dim()), *(t.data_ptr() for t in row)] for row in rows]
    for aligned in (True, False):
        table, owners = [], []
        for elements, *addresses in numbers:
            if all(n % 16 == 0 for n in (elements, *addresses)) == aligned:
                first = len(owners)
                owners += [len(table)] * -(-elements // module.BLOCK)
                table.append([first, elements, *addresses])
        if owners:
            rows_of = on_device(torch.tensor(table, dtype=torch.int64), device)
            made.append((rows_of, on_device(torch.tensor(owners, dtype=torch.int32), device), aligned))
    return made
