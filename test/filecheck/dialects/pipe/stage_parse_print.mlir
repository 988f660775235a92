// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["pipe", 2, "space"]], sym_name = "mesh"} : () -> ()

// CHECK: "pipe.schedule"() {axis = "pipe", orders = {{\[\[}}"0F0", "0B0"], ["1F0", "1I0", "1W0"]], routes = {{\[\[}}0, 1]], slices = 1 : i64, sym_name = "mine"} : () -> ()
"pipe.schedule"() {axis = "pipe", sym_name = "mine", orders = [["0F0", "0B0"], ["1F0", "1I0", "1W0"]], routes = [[0, 1]], slices = 1 : i64} : () -> ()

// CHECK: "pipe.stage"() ({
// CHECK-NEXT: ^bb0(%arg0: !torch.vtensor<[4,8],f32>):
"pipe.stage"() ({
^bb0(%x: !torch.vtensor<[4,8],f32>):
  %0 = torch.aten.relu %x : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %1 = torch.prim.TupleConstruct %0 : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // CHECK: "pipe.yield"(%{{.*}}) : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
  "pipe.yield"(%1) : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
// CHECK: }) {index = 0 : i64, kind = "F", sym_name = "stage_0_F"} : () -> ()
}) {index = 0 : i64, kind = "F", sym_name = "stage_0_F"} : () -> ()

// CHECK: "pipe.stage"() ({
"pipe.stage"() ({
  // CHECK: "pipe.yield"() : () -> ()
  "pipe.yield"() : () -> ()
}) {index = 1 : i64, kind = "I", sym_name = "stage_1_I"} : () -> ()

// CHECK-LABEL: @step_0
func.func @step_0(%x: !torch.tuple<vtensor<[4,8],f32>>) {
  // CHECK: "pipe.action"(%arg0) {action = "0F0", stage = @stage_0_F} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  %0 = "pipe.action"(%x) {action = "0F0", stage = @stage_0_F} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  // CHECK: "pipe.send"(%0) {tag = "1F0", to = 1 : i64} : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
  "pipe.send"(%0) {tag = "1F0", to = 1 : i64} : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
  return
}

// CHECK-LABEL: @step_1
func.func @step_1() -> !torch.tuple<vtensor<[4,8],f32>> {
  // CHECK: "pipe.action"() {action = "1I0", stage = @stage_1_I} : () -> ()
  "pipe.action"() {action = "1I0", stage = @stage_1_I} : () -> ()
  // CHECK: %0 = "pipe.receive"() {source = 0 : i64, tag = "1F0"} : () -> !torch.tuple<vtensor<[4,8],f32>>
  %0 = "pipe.receive"() {source = 0 : i64, tag = "1F0"} : () -> !torch.tuple<vtensor<[4,8],f32>>
  return %0 : !torch.tuple<vtensor<[4,8],f32>>
}
