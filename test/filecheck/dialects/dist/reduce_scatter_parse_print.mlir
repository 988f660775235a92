// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @reduce_scatter
func.func @reduce_scatter(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32> {
  // CHECK: %0 = "dist.reduce_scatter"(%arg0) {axes = ["tensor"], dim = 0 : i64, reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
  %0 = "dist.reduce_scatter"(%x) {dim = 0, axes = ["tensor"], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
  return %0 : !torch.vtensor<[1,8],f32>
}
