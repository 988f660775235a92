// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["pipe", 1, "space"]], sym_name = "mesh"} : () -> ()

// CHECK: "pipe.schedule"() {axis = "pipe", orders = {{\[\[}}"0F0", "0B0", "0F1", "0B1"]], routes = {{\[\[}}0]], slices = 1 : i64, sym_name = "mine", updates = {every = 1 : i64}} : () -> ()
"pipe.schedule"() {axis = "pipe", sym_name = "mine", orders = [["0F0", "0B0", "0F1", "0B1"]], routes = [[0]], slices = 1 : i64, updates = {every = 1 : i64}} : () -> ()

"pipe.stage"() ({
^bb0(%w: !torch.vtensor<[4],f32>, %g: !torch.vtensor<[4],f32>):
  %0 = torch.aten.mul.Tensor %w, %g : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %1 = torch.prim.TupleConstruct %0 : !torch.vtensor<[4],f32> -> !torch.tuple<vtensor<[4],f32>>
  "pipe.yield"(%1) : (!torch.tuple<vtensor<[4],f32>>) -> ()
// CHECK: }) {index = 0 : i64, kind = "O", sym_name = "stage_0_O"} : () -> ()
}) {index = 0 : i64, kind = "O", sym_name = "stage_0_O"} : () -> ()

// CHECK-LABEL: @step_0
func.func @step_0(%x: !torch.tuple<vtensor<[4],f32>, vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>> {
  // CHECK: "pipe.action"(%arg0) {action = "0O1", stage = @stage_0_O, version = 1 : i64} : (!torch.tuple<vtensor<[4],f32>, vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  %0 = "pipe.action"(%x) {action = "0O1", stage = @stage_0_O, version = 1 : i64} : (!torch.tuple<vtensor<[4],f32>, vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return %0 : !torch.tuple<vtensor<[4],f32>>
}

"pipe.stage"() ({
  "pipe.yield"() : () -> ()
// CHECK: }) {index = 0 : i64, kind = "F", slice = 2 : i64, sym_name = "stage_0_F_2"} : () -> ()
}) {index = 0 : i64, kind = "F", slice = 2 : i64, sym_name = "stage_0_F_2"} : () -> ()

"pipe.stage"() ({
^bb0(%x: !torch.vtensor<[4],f32>, %sum: !torch.vtensor<[4],f32>):
  %0 = torch.aten.mul.Tensor %sum, %x : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %1 = torch.prim.TupleConstruct %0 : !torch.vtensor<[4],f32> -> !torch.tuple<vtensor<[4],f32>>
  "pipe.yield"(%1) : (!torch.tuple<vtensor<[4],f32>>) -> ()
// CHECK: }) {index = 0 : i64, kind = "W", sums = 1 : i64, sym_name = "stage_0_W"} : () -> ()
}) {index = 0 : i64, kind = "W", sums = 1 : i64, sym_name = "stage_0_W"} : () -> ()
