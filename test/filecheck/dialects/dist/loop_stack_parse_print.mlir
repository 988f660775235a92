// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @loop_stack
func.func @loop_stack(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],f32> {
  // CHECK: %0 = "dist.loop_stack"(%arg0) {axes = ["micro"], dim = 0 : i64} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],f32>
  %0 = "dist.loop_stack"(%x) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],f32>
  return %0 : !torch.vtensor<[16,8],f32>
}
