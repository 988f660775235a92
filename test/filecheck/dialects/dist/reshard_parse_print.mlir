// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @reshard
func.func @reshard(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  // CHECK: %0 = "dist.reshard"(%arg0) {sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return %0 : !torch.vtensor<[4,8],f32>
}
