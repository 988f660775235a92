"""Errors of kernels for GPUs: the target, Triton itself, and what a kernel asks of the target."""

from shardc.diagnostics.base import ShardcError


class TritonMissing(ShardcError):
    """Kernels for a GPU were to be compiled or interpreted where Triton is not installed."""

    template = "kernels for {target} need Triton, which does not import: {problem}"
    hint = "pip install 'triton>={oldest}', or leave kernels out (fuse=False, --no-fuse)"


class TritonTooOld(ShardcError):
    """The Triton that is installed does not know what the generated kernels use."""

    template = "Triton {found} is too old: generated kernels need {oldest} or newer"
    hint = "pip install 'triton>={oldest}'"


class DriverTooOld(ShardcError):
    """The GPU's driver does not load what Triton's assembler makes."""

    template = "the GPU's driver is for CUDA {found}; kernels that Triton makes here need one for {needed}"
    hint = "install a newer driver, or a Triton that comes with an older assembler; ops run through ATen"


class TritonKernelNotSupported(ShardcError):
    """A kernel's body holds something that the Triton backend has no code for."""

    template = "the Triton backend has no code for {what}"
    hint = "these ops stay calls of ATen"


class InterpreterFailed(ShardcError):
    """A program did not run in Triton's interpreter: a kernel is wrong there, or its process ended."""

    template = "a program with Triton kernels failed in the interpreter: {error}"
    hint = "please report this message with the program"


class TritonCompileFailed(ShardcError):
    """Triton, or the assembler behind it, refused a generated kernel or took too long."""

    template = "kernel {name} did not compile for {target}: {reason}"
    hint = "its ops run through ATen; please report this message with the model"


class TooMuchSharedMemory(ShardcError):
    """Every configuration of a kernel takes more shared memory than one program of the target can have."""

    template = (
        "kernel {name} needs {needed_bytes} bytes of shared memory; a program on {target} has {shared_bytes}"
    )
    hint = "its ops run through ATen; smaller tiles can be asked for with #kern.config"


class TilingNotLegal(ShardcError):
    """``#kern.config`` asks for tiles that a target cannot have.

    Fails: ``#kern.config<{block_m = 48 : i64}>`` on a matmul. Works: ``block_m = 64``.
    """

    template = "kernel {name} cannot be tiled as its #kern.config says on {target}: {problem}"
    hint = "change the config, or leave it out: tiles are then chosen by a model"
