// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @layouts
func.func @layouts(%x: !torch.vtensor<[4,8],f32>) {
  // CHECK: sharding = #dist.sharding<@mesh, {{\[}}[], []], []>
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  // CHECK: sharding = #dist.sharding<@mesh, {{\[}}["data", "tensor"], ["micro"]], []>
  %1 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data", "tensor"], ["micro"]], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  // CHECK: sharding = #dist.sharding<@mesh, {{\[}}[], ["data"]], {{\[}}["sum", "tensor", "micro"]]>
  %2 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[], ["data"]], [["sum", "tensor", "micro"]]>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  // CHECK: sharding = #dist.sharding<@mesh, {{\[}}["data", "?"], ["?"]], []>
  %3 = "dist.constraint"(%x) {sharding = #dist.sharding<@mesh, [["data", "?"], ["?"]], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// A dim need not divide into its blocks: partition pads it.
// CHECK-LABEL: @does_not_divide
func.func @does_not_divide(%x: !torch.vtensor<[3],f32>) {
  // CHECK: sharding = #dist.sharding<@mesh, {{\[}}["tensor"]], []>
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["tensor"]], []>} : (!torch.vtensor<[3],f32>) -> !torch.vtensor<[3],f32>
  return
}

// A scalar has no dims.
// CHECK-LABEL: @scalar
func.func @scalar(%x: !torch.vtensor<[],f32>) {
  // CHECK: sharding = #dist.sharding<@mesh, [], {{\[}}["sum", "data"]]>
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [], [["sum", "data"]]>} : (!torch.vtensor<[],f32>) -> !torch.vtensor<[],f32>
  return
}

// On arguments, results and calls.
// CHECK-LABEL: @discardable
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
func.func @discardable(%x: !torch.vtensor<[4,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) {
  // CHECK: torch.aten.relu %{{.*}} {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  %0 = torch.aten.relu %x {dist.shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  return
}
