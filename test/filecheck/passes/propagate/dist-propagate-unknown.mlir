// RUN: shardc-opt --split-input-file --dist-propagate %s | filecheck %s

// An op without a sharding rule stops propagation both ways: each of its operands and results is whole.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// CHECK-LABEL: func.func @no_rule
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
func.func @no_rule(
    %x: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>},
    %w: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> !torch.vtensor<[8,8],f32> {
  %int1 = torch.constant.int 1
  // CHECK: %0 = torch.aten.relu %arg0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  %0 = torch.aten.relu %x : !torch.vtensor<[8,8],f32> -> !torch.vtensor<[8,8],f32>
  // CHECK: %1 = torch.operator "torch.aten.linalg_matrix_exp"(%0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  %1 = torch.operator "torch.aten.linalg_matrix_exp"(%0) : (!torch.vtensor<[8,8],f32>) -> !torch.vtensor<[8,8],f32>
  // CHECK: %2 = torch.aten.neg %1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  %2 = torch.aten.neg %1 : !torch.vtensor<[8,8],f32> -> !torch.vtensor<[8,8],f32>
  return %2 : !torch.vtensor<[8,8],f32>
}
