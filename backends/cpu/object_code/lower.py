"""Lowering of loops over memory to LLVM IR, in a separate process (``worker.py``) without torch."""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from shardc.backends.cpu.lanes.expand import expand_math
from shardc.backends.cpu.lanes.narrow import narrow_integers
from shardc.backends.cpu.lanes.rounding import expand_rounding
from shardc.backends.cpu.lanes.sections import cut_loops
from shardc.backends.cpu.lanes.vectorize import vectorize
from shardc.backends.cpu.lanes.versions import add_versions
from shardc.backends.cpu.object_code.marks import LOOP, copied
from shardc.dialects.inner_ops import inner_ops

LOWER = (
    "canonicalize,cse,lower-affine,loop-invariant-code-motion,arith-expand{include-bf16=true},convert-scf-to-cf,"
    "convert-vector-to-llvm,convert-math-to-llvm,convert-math-to-libm,expand-strided-metadata,finalize-memref-to-llvm,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1},convert-index-to-llvm,convert-arith-to-llvm,"
    "convert-cf-to-llvm,reconcile-unrealized-casts,canonicalize,cse"
)

_ROUND = """
llvm.func @__truncsfbf2(%x: f32) -> bf16 {
  %half = llvm.mlir.constant(16 : i32) : i32
  %one = llvm.mlir.constant(1 : i32) : i32
  %most = llvm.mlir.constant(32767 : i32) : i32
  %quiet = llvm.mlir.constant(64 : i32) : i32
  %bits = llvm.bitcast %x : f32 to i32
  %high = llvm.lshr %bits, %half : i32
  %odd = llvm.and %high, %one : i32
  %tie = llvm.add %odd, %most : i32
  %up = llvm.add %bits, %tie : i32
  %rounded = llvm.lshr %up, %half : i32
  %nan = llvm.or %high, %quiet : i32
  %is_nan = llvm.fcmp "uno" %x, %x : f32
  %chosen = llvm.select %is_nan, %nan, %rounded : i1, i32
  %short = llvm.trunc %chosen : i32 to i16
  %made = llvm.bitcast %short : i16 to bf16
  llvm.return %made : bf16
}
"""
"""Function that LLVM calls to round to bf16 on CPUs without AVX512-BF16, as in compiler-rt: to nearest, ties
to even.
"""

_MAKING = frozenset({"llvm.load", "llvm.bitcast", "llvm.intr.masked.load"})
"""Ops whose results are bf16 numbers: loads, and rounding as integers."""

SCALES = "kern.scales_by_powers_of_two"
"""Attribute of a module whose target scales by powers of two with one instruction
(:func:`shardc.backends.cpu.lanes.expand.expand_math`)."""
TABLES = "kern.tables_in_registers"
"""Attribute of a module whose target has the instructions of :mod:`shardc.backends.cpu.lanes.tables`."""
WIDEST = 512
"""Bits of vectors that LLVM's loop vectorizer may use. By default it takes 256 on Intel's server CPUs."""


def lower(module: ir.Module, entries: str, without: str) -> None:
    """Lower ``module`` to the LLVM dialect, and add the definitions of ``entries``, a module's text.

    ``without``: LLVM's list of features that functions must not use, such as ``-avx512f,-avx512vl``. The
    result is verified once at the end: verification after each pass took as long as the passes. Raises
    MLIRError.
    """
    with module.context, ir.Location.unknown():
        _run("canonicalize,cse", module)
        cut_loops(module)
        _run("canonicalize,cse", module)
        narrow_integers(module)
        _run("canonicalize,cse", module)
        add_versions(module)
        tables = TABLES in module.operation.attributes
        if tables:
            vectorize(module)
        expand_math(module, SCALES in module.operation.attributes, tables)
        expand_rounding(module)
        _run(LOWER, module)
        has_bf16 = _move_bits(module)
        given = {"prefer-vector-width": WIDEST, **({"target-features": without} if without else {})}
        pairs = [ir.Attribute.parse(f'["{name}", "{value}"]') for name, value in given.items()]
        passed = ir.ArrayAttr.get([ir.StringAttr.get("noinline"), *pairs])
        for function in module.body:
            for block in function.regions[0].blocks:
                _annotate(block.operations[len(block.operations) - 1].operation)
            if len(function.regions[0].blocks):
                function.attributes["passthrough"] = passed
        if has_bf16:
            _append(ir.Module.parse(_ROUND), module)
        _append(ir.Module.parse(entries), module)
        module.operation.verify()


def _run(passes: str, module: ir.Module) -> None:
    manager = PassManager.parse(f"builtin.module({passes})")
    manager.enable_verifier(False)
    manager.run(module.operation)


def _annotate(branch: ir.Operation) -> None:
    """Move a loop's annotation from the ``scf.for`` attribute to LLVM's."""
    if LOOP in branch.attributes:
        branch.attributes["loop_annotation"] = branch.attributes[LOOP]
        del branch.attributes[LOOP]


def _move_bits(module: ir.Module) -> bool:
    """Move masked bf16 lanes as integers; return True if the module has bf16 numbers.

    On targets without bf16 arithmetic, LLVM would call a rounding function for each lane that it extracts.
    """
    has_bf16 = False
    for op in list(inner_ops(module.operation)):
        has_bf16 |= op.name in _MAKING and "bf16" in str(op.results[0].type)
        if op.name == "llvm.intr.masked.load" and _is_bf16(op.results[0].type):
            mask, nothing = list(op.operands)[1:3]
            with ir.InsertionPoint(op):
                lanes = _bitcast(nothing, ir.IntegerType.get_signless(16))
                bits = copied(op, [op.operands[0], mask, lanes], [lanes.type]).result
                op.results[0].replace_all_uses_with(_bitcast(bits, ir.BF16Type.get()))
            op.erase()
        elif op.name == "llvm.intr.masked.store" and _is_bf16(op.operands[0].type):
            with ir.InsertionPoint(op):
                op.operands[0] = _bitcast(op.operands[0], ir.IntegerType.get_signless(16))
    return has_bf16


def _is_bf16(type_: ir.Type) -> bool:
    return isinstance(type_, ir.VectorType) and isinstance(ir.VectorType(type_).element_type, ir.BF16Type)


def _bitcast(lanes: ir.Value, element: ir.Type) -> ir.Value:
    type_ = ir.VectorType.get(ir.VectorType(lanes.type).shape, element)
    return ir.Operation.create("llvm.bitcast", [type_], [lanes]).result


def _append(extra: ir.Module, module: ir.Module) -> None:
    """Move the definitions of ``extra`` to the end of ``module``, which has the bodies that it declares."""
    present = {ir.StringAttr(o.attributes["sym_name"]).value for o in module.body}
    for op in list(extra.body):
        if ir.StringAttr(op.attributes["sym_name"]).value not in present:
            op.operation.clone(ip=ir.InsertionPoint(module.body))
