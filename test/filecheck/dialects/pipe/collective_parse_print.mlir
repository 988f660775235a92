// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["pipe", 2, "space"], ["data", 2, "space"]], sym_name = "mesh"} : () -> ()

// CHECK: "pipe.stage"() ({
// CHECK-NEXT: ^bb0(%arg0: !torch.vtensor<[4,8],f32>):
// CHECK-NEXT: %0 = "dist.all_reduce"(%arg0) {axes = ["data"], reduction = "sum"}
"pipe.stage"() ({
^bb0(%x: !torch.vtensor<[4,8],f32>):
  %0 = "dist.all_reduce"(%x) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  %1 = torch.prim.TupleConstruct %0 : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  "pipe.yield"(%1) : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
// CHECK: }) {index = 1 : i64, kind = "REDUCE_GRAD", sym_name = "stage_1_REDUCE_GRAD"} : () -> ()
}) {index = 1 : i64, kind = "REDUCE_GRAD", sym_name = "stage_1_REDUCE_GRAD"} : () -> ()

// CHECK-LABEL: @step_1
func.func @step_1(%g: !torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>> {
  // CHECK: "pipe.action"(%arg0) {action = "1REDUCE_GRAD", stage = @stage_1_REDUCE_GRAD}
  %0 = "pipe.action"(%g) {action = "1REDUCE_GRAD", stage = @stage_1_REDUCE_GRAD} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return %0 : !torch.tuple<vtensor<[4,8],f32>>
}
