"""Errors of GPU kernels: the target, Triton itself, and limits of the target."""

from shardc.diagnostics.base import ShardcError


class TritonMissing(ShardcError):
    """Kernels for a GPU were to be compiled or interpreted, but Triton is not installed."""

    template = "kernels for {target} need Triton, which cannot be imported: {problem}"
    hint = "pip install 'triton>={oldest}', or leave kernels out (fuse=False, --no-fuse)"


class TritonTooOld(ShardcError):
    """The installed Triton lacks features that the generated kernels use."""

    template = "Triton {found} is too old: generated kernels need {oldest} or newer"
    hint = "pip install 'triton>={oldest}'"


class DriverTooOld(ShardcError):
    """The GPU's driver cannot load the output of Triton's assembler."""

    template = "the GPU's driver is for CUDA {found}; kernels that Triton makes here need one for {needed}"
    hint = "install a newer driver, or a Triton that comes with an older assembler; ops run through ATen"


class TritonKernelNotSupported(ShardcError):
    """The Triton backend cannot generate code for a kernel's body."""

    template = "the Triton backend cannot compile {what}"
    hint = "no change is needed: these ops stay calls of ATen"


class InterpreterFailed(ShardcError):
    """A program failed in Triton's interpreter: a kernel is wrong, or the process ended."""

    template = "a program with Triton kernels failed in the interpreter: {error}"
    hint = "please report this message with the program"


class TritonCompileFailed(ShardcError):
    """Triton or its assembler rejected a generated kernel or took too long."""

    template = "kernel {name} did not compile for {target}: {reason}"
    hint = "its ops run through ATen; please report this message with the model"


class TooMuchSharedMemory(ShardcError):
    """Every configuration of a kernel needs more shared memory than a program can have on the target."""

    template = (
        "kernel {name} needs {needed_bytes} bytes of shared memory; a program on {target} has {shared_bytes}"
    )
    hint = "its ops run through ATen; smaller tiles can be asked for with #kern.config"


class TilingNotLegal(ShardcError):
    """``#kern.config`` requests tiles that the target does not allow.

    Fails: ``#kern.config<{block_m = 48 : i64}>`` on a matmul. Works: ``block_m = 64``.
    """

    template = "kernel {name} cannot be tiled as its #kern.config says on {target}: {problem}"
    hint = "change the config, or leave it out: tiles are then chosen by a model"
