// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @yield
func.func @yield(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  %0 = "dist.loop"(%t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    // CHECK: "dist.yield"(%{{.*}}) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 0>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}
