// RUN: shardc-opt %s --verify-diagnostics --split-input-file

func.func @f() {
  // expected-error@+1 {{'pipe.action' op action must be a stage, a kind (F, B, I, W, O) and a micro-batch, such as 2F0, or a stage and a collective, such as 2REDUCE_GRAD, not 'F0'}}
  "pipe.action"() {action = "F0", stage = @stage_0_F} : () -> ()
  return
}

// -----

func.func @f() {
  // expected-error@+1 {{'pipe.action' op runs @stage_0_F, but the module has no such pipe.stage}}
  "pipe.action"() {action = "0F0", stage = @stage_0_F} : () -> ()
  return
}

// -----

"pipe.stage"() ({
  "pipe.yield"() : () -> ()
}) {index = 0 : i64, kind = "F", sym_name = "stage_0_F"} : () -> ()
func.func @f() {
  // expected-error@+1 {{'pipe.action' op is 0B0, but @stage_0_F is of kind F}}
  "pipe.action"() {action = "0B0", stage = @stage_0_F} : () -> ()
  return
}

// -----

"pipe.stage"() ({
^bb0(%x: !torch.vtensor<[4],f32>):
  "pipe.yield"() : () -> ()
}) {index = 0 : i64, kind = "F", sym_name = "stage_0_F"} : () -> ()
func.func @f() {
  // expected-error@+1 {{'pipe.action' op must have 1 operands, not 0}}
  "pipe.action"() {action = "0F0", stage = @stage_0_F} : () -> ()
  return
}

// -----

"pipe.stage"() ({
^bb0(%x: !torch.vtensor<[4],f32>):
  "pipe.yield"() : () -> ()
}) {index = 0 : i64, kind = "F", sym_name = "stage_0_F"} : () -> ()
func.func @f(%x: !torch.tuple<vtensor<[5],f32>>) {
  // expected-error@+1 {{'pipe.action' op operand 0 must be !torch.vtensor<[4],f32>, not !torch.vtensor<[5],f32>}}
  "pipe.action"(%x) {action = "0F0", stage = @stage_0_F} : (!torch.tuple<vtensor<[5],f32>>) -> ()
  return
}

// -----

"pipe.stage"() ({
  "pipe.yield"() : () -> ()
}) {index = 0 : i64, kind = "F", sym_name = "stage_0_F"} : () -> ()
func.func @f() {
  // expected-error@+1 {{'pipe.action' op version is -1; it must be at least 0}}
  "pipe.action"() {action = "0F0", stage = @stage_0_F, version = -1 : i64} : () -> ()
  return
}

// -----

"pipe.stage"() ({
  "pipe.yield"() : () -> ()
}) {index = 0 : i64, kind = "UNSHARD", sym_name = "stage_0_UNSHARD"} : () -> ()
func.func @f() {
  // expected-error@+1 {{'pipe.action' op is 0REDUCE_GRAD, but @stage_0_UNSHARD is of kind UNSHARD}}
  "pipe.action"() {action = "0REDUCE_GRAD", stage = @stage_0_UNSHARD} : () -> ()
  return
}
