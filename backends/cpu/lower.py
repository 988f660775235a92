"""Loops over memory become LLVM IR, with an entry for each kernel that a thread pool can call."""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from shardc.backends.cpu.emitted import Emitted
from shardc.backends.cpu.loops import BARRIER
from shardc.backends.cpu.polynomials import expand_math
from shardc.diagnostics.kernels import KernelNotLowered

LOWER = (
    "canonicalize,cse,lower-affine,loop-invariant-code-motion,arith-expand{include-bf16=true},convert-scf-to-cf,"
    "convert-vector-to-llvm,convert-math-to-llvm,convert-math-to-libm,expand-strided-metadata,finalize-memref-to-llvm,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1},convert-index-to-llvm,convert-arith-to-llvm,"
    "convert-cf-to-llvm,reconcile-unrealized-casts,canonicalize,cse"
)
INFO_SUFFIX = "_info"
TARGET_SYMBOL = "shardc_target"


def lower(module: ir.Module, kernels: list[Emitted], target: str) -> None:
    """Turns ``module`` into the LLVM dialect and adds the entries, the kernels' figures and the name of the target.

    Entry ``name(void **pointers)``: inputs, outputs, workspace; that of a flat kernel: a count, and so many times the
    number of elements, inputs, outputs. ``name_info``: six i64, the numbers of inputs and of outputs with memory of their
    own, the most threads that pay, bytes of workspace that threads share and that each has, and for flat kernels the
    number of elements for which a thread pays (else 0).

    Raises:
        KernelNotLowered: a pass failed.
    """
    context = module.context
    with context, ir.Location.unknown():
        module.body.append(ir.Operation.parse(f"func.func private @{BARRIER}()"))
        try:
            PassManager.parse("builtin.module(canonicalize,cse)").run(module.operation)
            expand_math(module)
            PassManager.parse(f"builtin.module({LOWER})").run(module.operation)
        except ir.MLIRError as error:
            names = ", ".join(k.name for k in kernels)
            raise KernelNotLowered(names=names, reason=str(error)[:500]) from error
        for function in module.body:
            if "sym_name" in function.attributes and ir.StringAttr(function.attributes["sym_name"]).value != BARRIER:
                function.attributes["passthrough"] = ir.ArrayAttr.get([ir.StringAttr.get("noinline")])
        text = "\n".join([_DECLARATIONS, _target(target), *(_entry(k) for k in kernels)])
        extra = ir.Module.parse(f"module {{\n{text}\n}}")
        _append(extra, module)


_DECLARATIONS = """
llvm.func @omp_get_thread_num() -> i32
llvm.func @omp_get_num_threads() -> i32"""


def _append(extra: ir.Module, module: ir.Module) -> None:
    """Moves the definitions of ``extra`` to the end of ``module``; bodies declared in it stand there already."""
    present = {ir.StringAttr(o.attributes["sym_name"]).value for o in module.body}
    for op in list(extra.body):
        if ir.StringAttr(op.attributes["sym_name"]).value not in present:
            op.operation.clone(ip=ir.InsertionPoint(module.body))


def _target(target: str) -> str:
    text = target + "\\00"
    return f'llvm.mlir.global constant @{TARGET_SYMBOL}("{text}") {{addr_space = 0 : i32}}'


def _entry(kernel: Emitted) -> str:
    return "\n".join([_flat_entry(kernel) if kernel.elements_per_thread else _plain_entry(kernel), _info(kernel)])


_THREADS = """
  %thread32 = llvm.call @omp_get_thread_num() : () -> i32
  %threads32 = llvm.call @omp_get_num_threads() : () -> i32
  %thread = llvm.sext %thread32 : i32 to i64
  %threads = llvm.sext %threads32 : i32 to i64"""


def _flat_entry(kernel: Emitted) -> str:
    pointers = kernel.inputs + kernel.outputs
    slots = "\n".join(
        f"  %slot{at} = llvm.getelementptr %call[{at + 1}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr\n"
        f"  %p{at} = llvm.load %slot{at} : !llvm.ptr -> !llvm.ptr"
        for at in range(pointers)
    )
    types = ", ".join(["i64"] * 3 + ["!llvm.ptr"] * pointers)
    arguments = ", ".join(["%thread", "%threads", "%size", *(f"%p{at}" for at in range(pointers))])
    return f"""llvm.func @{kernel.name}(%pointers: !llvm.ptr) {{{_THREADS}
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %width = llvm.mlir.constant({pointers + 1} : i64) : i64
  %count = llvm.load %pointers : !llvm.ptr -> i64
  llvm.br ^head(%zero : i64)
^head(%number: i64):
  %more = llvm.icmp "slt" %number, %count : i64
  llvm.cond_br %more, ^call, ^end
^call:
  %before = llvm.mul %number, %width : i64
  %first = llvm.add %before, %one : i64
  %call = llvm.getelementptr %pointers[%first] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %size = llvm.load %call : !llvm.ptr -> i64
{slots}
  llvm.call @{kernel.name}_body({arguments}) : ({types}) -> ()
  %next = llvm.add %number, %one : i64
  llvm.br ^head(%next : i64)
^end:
  llvm.return
}}
llvm.func @{kernel.name}_body({types})"""


def _plain_entry(kernel: Emitted) -> str:
    buffers, pointers = kernel.buffers, kernel.inputs + kernel.outputs
    shared, private = sum(buffers.shared), sum(buffers.private)
    lines = [f"llvm.func @{kernel.name}(%pointers: !llvm.ptr) {{"]
    for at in range(pointers + 1):
        lines += [
            f"  %slot{at} = llvm.getelementptr %pointers[{at}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr",
            f"  %p{at} = llvm.load %slot{at} : !llvm.ptr -> !llvm.ptr",
        ]
    lines += [
        _THREADS,
        f"  %privates = llvm.getelementptr %p{pointers}[{shared}] : (!llvm.ptr) -> !llvm.ptr, i8",
        f"  %size = llvm.mlir.constant({private} : i64) : i64",
        "  %before = llvm.mul %thread, %size : i64",
        "  %mine = llvm.getelementptr %privates[%before] : (!llvm.ptr, i64) -> !llvm.ptr, i8",
    ]
    arguments = ["%thread", "%threads", *(f"%p{at}" for at in range(pointers))]
    for at, (kind, number) in enumerate(buffers.kinds):
        before = sum(getattr(buffers, kind)[:number])
        arguments.append(f"%w{at}")
        if kind == "partial":
            lines += [
                f"  %skip{at} = llvm.mlir.constant({private + before} : i64) : i64",
                f"  %all{at} = llvm.mul %threads, %skip{at} : i64",
                f"  %w{at} = llvm.getelementptr %privates[%all{at}] : (!llvm.ptr, i64) -> !llvm.ptr, i8",
            ]
        else:
            start = f"%p{pointers}" if kind == "shared" else "%mine"
            lines.append(f"  %w{at} = llvm.getelementptr {start}[{before}] : (!llvm.ptr) -> !llvm.ptr, i8")
    types = ", ".join(["i64", "i64"] + ["!llvm.ptr"] * (len(arguments) - 2))
    lines += [f"  llvm.call @{kernel.name}_body({', '.join(arguments)}) : ({types}) -> ()", "  llvm.return", "}"]
    lines.append(f"llvm.func @{kernel.name}_body({types})")
    return "\n".join(lines)


def _info(kernel: Emitted) -> str:
    buffers = kernel.buffers
    shared, private, partial = (sum(sizes) for sizes in (buffers.shared, buffers.private, buffers.partial))
    figures = [kernel.inputs, kernel.outputs, kernel.max_threads, shared, private + partial, kernel.elements_per_thread]
    return (
        f"llvm.mlir.global external constant @{kernel.name}{INFO_SUFFIX}(dense<{figures}> : tensor<{len(figures)}xi64>)"
        f" : !llvm.array<{len(figures)} x i64>"
    )
