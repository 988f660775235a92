// RUN: shardc-opt --split-input-file --dist-propagate %s | filecheck %s

// dist.constraint is the user's word on a value inside the step. It is kept, and spreads both ways.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// CHECK-LABEL: func.func @spreads
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>
func.func @spreads(%x: !torch.vtensor<[8,16],f32>, %w: !torch.vtensor<[16,32],f32>) -> !torch.vtensor<[8,32],f32> {
  // CHECK: %0 = torch.aten.mm %arg0, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]}
  %0 = torch.aten.mm %x, %w : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,32],f32> -> !torch.vtensor<[8,32],f32>
  // CHECK: %1 = "dist.constraint"(%0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>], sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>}
  %1 = "dist.constraint"(%0) {sharding = #dist.sharding<@mesh, [["data"], ["tensor"]], []>} : (!torch.vtensor<[8,32],f32>) -> !torch.vtensor<[8,32],f32>
  // CHECK: %2 = torch.aten.relu %1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]}
  %2 = torch.aten.relu %1 : !torch.vtensor<[8,32],f32> -> !torch.vtensor<[8,32],f32>
  return %2 : !torch.vtensor<[8,32],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// The columns of w come as far as the constraint, which keeps its value whole; %2 learns of them from nobody.
// CHECK-LABEL: func.func @is_kept
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>
func.func @is_kept(%x: !torch.vtensor<[8,16],f32>, %w: !torch.vtensor<[16,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>}) -> !torch.vtensor<[8,32],f32> {
  // CHECK: %0 = torch.aten.mm %arg0, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>]}
  %0 = torch.aten.mm %x, %w : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,32],f32> -> !torch.vtensor<[8,32],f32>
  // CHECK: %1 = "dist.constraint"(%0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  %1 = "dist.constraint"(%0) {sharding = #dist.sharding<@mesh, [[], []], []>} : (!torch.vtensor<[8,32],f32>) -> !torch.vtensor<[8,32],f32>
  // CHECK: %2 = torch.aten.relu %1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  %2 = torch.aten.relu %1 : !torch.vtensor<[8,32],f32> -> !torch.vtensor<[8,32],f32>
  return %2 : !torch.vtensor<[8,32],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// An open constraint is a wish that may be cut further.
// CHECK-LABEL: func.func @open
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
func.func @open(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> !torch.vtensor<[8,16],f32> {
  // CHECK: %0 = torch.aten.relu %arg0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]}
  %0 = torch.aten.relu %x : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  // CHECK: %1 = "dist.constraint"(%0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>], sharding = #dist.sharding<@mesh, {{\[}}["?"], ["tensor"]], []>}
  %1 = "dist.constraint"(%0) {sharding = #dist.sharding<@mesh, [["?"], ["tensor"]], []>} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  return %1 : !torch.vtensor<[8,16],f32>
}
