// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @slice
func.func @slice(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,2],f32> {
  // CHECK: %0 = "dist.slice"(%arg0) {axes = ["data", #dist.axis<"tensor", 1 : i64, 2 : i64>], dim = 1 : i64} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,2],f32>
  %0 = "dist.slice"(%x) {dim = 1, axes = ["data", #dist.axis<"tensor", 1, 2>]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,2],f32>
  return %0 : !torch.vtensor<[4,2],f32>
}

// CHECK-LABEL: @iteration
func.func @iteration(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32> {
  // CHECK: "dist.slice"(%arg0) {axes = ["micro"], dim = 0 : i64}
  %0 = "dist.slice"(%x) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
  return %0 : !torch.vtensor<[1,8],f32>
}
