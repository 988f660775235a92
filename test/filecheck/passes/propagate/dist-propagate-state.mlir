// RUN: shardc-opt --split-input-file --dist-propagate %s | filecheck %s

// State comes back as it went in: an argument and the result of the same role and name are one value to propagation,
// so what reaches the new momentum reaches the old one.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// CHECK-LABEL: func.func @momentum
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], []], []>
func.func @momentum(
    %g: !torch.vtensor<[8,16],f32> {dist.role = "input", dist.name = "g", dist.sharding = #dist.sharding<@mesh, [["data"], []], []>},
    %w: !torch.vtensor<[8,16],f32> {dist.role = "param", dist.name = "w"},
    %m: !torch.vtensor<[8,16],f32> {dist.role = "opt_state", dist.name = "m"},
    %other: !torch.vtensor<[8,16],f32> {dist.role = "opt_state", dist.name = "other"})
    -> (!torch.vtensor<[8,16],f32> {dist.role = "opt_state", dist.name = "m"}, !torch.vtensor<[8,16],f32> {dist.role = "param", dist.name = "w"}) {
  // CHECK: %0 = torch.aten.relu %arg0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  %0 = torch.aten.relu %g : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  // CHECK: %1 = torch.aten.neg %arg2 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  %1 = torch.aten.neg %m : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  return %0, %1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>
}
