"""Errors of compiled kernels: bodies that cannot be lowered, missing tools, libraries that do not load."""

from shardc.diagnostics.base import ShardcError
from shardc.runtime.report.messages import ShardcWarning


class KernelNotSupported(ShardcError):
    """A backend cannot generate loops for a kernel's body, for example with a non-affine index."""

    template = "shardc cannot compile {what} to a kernel"
    hint = "leave this op to ATen (kern.extern)"


class UnsupportedTarget(ShardcError):
    """Kernels were to be compiled for a CPU that the backend does not support, or that this machine is not.

    Works: ``SHARDC_TARGET="x86_64 avx avx2 fma f16c"`` on a machine with AVX-512.
    """

    template = "no kernels are compiled for the CPU {target}: {problem}"
    hint = (
        "every op runs through ATen, with the same results; pass fuse=False (--no-fuse) to skip "
        "kernels altogether"
    )


class KernelNotLowered(ShardcError):
    """MLIR or LLVM rejected the loops that the CPU backend generated: a bug in shardc."""

    template = "the loops of kernels {names} did not lower to machine code: {reason}"
    hint = "please report this message with the model"


class NoLinker(ShardcError):
    """The machine has no linker to write a shared object."""

    template = "no linker was found (looked for {looked}); saving compiled kernels to a file needs one"
    hint = "install binutils or gcc (apt install binutils), or set SHARDC_LINKER to a linker"


class LinkFailed(ShardcError):
    """The system's linker rejected the object file of a kernel."""

    template = "{linker} failed with exit code {code}: {output}"
    hint = "set SHARDC_LINKER to another linker, such as ld, gcc or ld.lld"


class KernelCacheNotWritable(ShardcError):
    """The cache folder cannot be written, so every process compiles and measures again."""

    template = (
        "the cache folder {folder} cannot be written ({reason}), so every process compiles and "
        "measures kernels again"
    )
    hint = "set SHARDC_CACHE_DIR to a folder that can be written"


class KernelCacheNotTrusted(ShardcError):
    """Another user owns the cache folder or can write to it; programs in it would run as this user."""

    template = (
        "compiled kernels and programs in {folder} are not used: {problem}; every process compiles "
        "its own in a temporary folder"
    )
    hint = (
        "set SHARDC_CACHE_DIR to a folder of your own that nobody else can write to, or remove this "
        "one and create it again (mkdir -m 700); others must not be able to write to the folders "
        "above it either"
    )


class KernelCacheWarning(ShardcWarning):
    """Compiled kernels are not kept between processes; reported once in a process."""


class UnknownTarget(ShardcError):
    """The target of the kernels does not exist.

    Fails: ``shardc compile step.py --target sm_89``. Works: ``--target sm_90``.
    """

    template = "there is no target {target!r}; known ones are {known}"
    hint = (
        "name one of these; a kernel for an older GPU of the same vendor may run on a newer one, not the "
        "other way round"
    )
