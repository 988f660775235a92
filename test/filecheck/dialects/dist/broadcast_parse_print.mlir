// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @broadcast
func.func @broadcast(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  // CHECK: %0 = "dist.broadcast"(%arg0) {axes = ["tensor"], root = 3 : i64} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  %0 = "dist.broadcast"(%x) {axes = ["tensor"], root = 3} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return %0 : !torch.vtensor<[4,8],f32>
}
