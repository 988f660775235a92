"""The result of lowering is verified exactly once."""

import pytest
from torch_mlir import ir

from shardc.backends.cpu.object_code import lower as lowering

LOOPS = """
func.func @f_body(%x: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %c8 step %c1 {
    %a = memref.load %x[%i] : memref<8xf32>
    %b = arith.negf %a : f32
    memref.store %b, %x[%i] : memref<8xf32>
  }
  return
}"""


def test_loops_become_llvm_ir():
    with ir.Context():
        module = ir.Module.parse(LOOPS)
        lowering.lower(module, "module {}", "")
        dialects = {op.operation.name.partition(".")[0] for op in module.body}
        assert dialects == {"llvm"} and "scf.for" not in str(module)


def test_what_a_pass_breaks_is_refused(monkeypatch):
    """A function loses its return, which no pass after that looks for."""

    def breaks(module: ir.Module) -> None:
        block = next(iter(module.body)).regions[0].blocks[0]
        block.operations[len(block.operations) - 1].operation.erase()

    monkeypatch.setattr(lowering, "_move_bits", breaks)
    with ir.Context():
        module = ir.Module.parse(LOOPS)
        with pytest.raises(ir.MLIRError, match="terminator"):
            lowering.lower(module, "module {}", "")
