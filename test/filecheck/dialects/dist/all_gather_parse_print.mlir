// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @all_gather
func.func @all_gather(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,32],f32> {
  // CHECK: %0 = "dist.all_gather"(%arg0) {axes = ["tensor"], dim = 1 : i64} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,32],f32>
  %0 = "dist.all_gather"(%x) {dim = 1, axes = ["tensor"]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,32],f32>
  return %0 : !torch.vtensor<[4,32],f32>
}
