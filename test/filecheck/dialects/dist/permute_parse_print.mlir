// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @permute
func.func @permute(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  // CHECK: %0 = "dist.permute"(%arg0) {source = #dist.sharding<@mesh, {{\[}}["data", "tensor"], []], []>, target = #dist.sharding<@mesh, {{\[}}["tensor", "data"], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  %0 = "dist.permute"(%x) {source = #dist.sharding<@mesh, [["data", "tensor"], []], []>, target = #dist.sharding<@mesh, [["tensor", "data"], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return %0 : !torch.vtensor<[4,8],f32>
}
