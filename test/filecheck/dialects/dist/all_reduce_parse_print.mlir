// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @all_reduce
func.func @all_reduce(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  // CHECK: %0 = "dist.all_reduce"(%arg0) {axes = ["data", "tensor"], reduction = "max"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  %0 = "dist.all_reduce"(%x) {axes = ["data", "tensor"], reduction = "max"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return %0 : !torch.vtensor<[4,8],f32>
}
