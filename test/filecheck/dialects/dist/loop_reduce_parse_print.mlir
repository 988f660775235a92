// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @loop_reduce
func.func @loop_reduce(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  // CHECK: %0 = "dist.loop_reduce"(%arg0) {axes = ["micro"], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  %0 = "dist.loop_reduce"(%x) {axes = ["micro"], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return %0 : !torch.vtensor<[4,8],f32>
}
