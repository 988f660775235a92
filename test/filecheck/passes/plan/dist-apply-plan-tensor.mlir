// RUN: shardc-opt --split-input-file '--dist-apply-plan=plan=data*tensor' %s | filecheck %s

// "tensor" on a model that nobody prepared: of each chain of matmuls the first weight is cut by columns, open for more.
// The others follow by propagation. A product of presets annotates the arguments of both.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// w1 heads the chain w1, w2; w3 heads w3, w4; no later weight would get its rows from w5's columns.
func.func @chains(
    %x: !torch.vtensor<[8,16],f32> {dist.role = "input", dist.name = "x"},
    %w1: !torch.vtensor<[16,32],f32> {dist.role = "param", dist.name = "w1"},
    %w2: !torch.vtensor<[32,16],f32> {dist.role = "param", dist.name = "w2"},
    %w3: !torch.vtensor<[16,32],f32> {dist.role = "param", dist.name = "w3"},
    %w4: !torch.vtensor<[32,16],f32> {dist.role = "param", dist.name = "w4"},
    %w5: !torch.vtensor<[16,8],f32> {dist.role = "param", dist.name = "w5"}) -> !torch.vtensor<[8,8],f32> {
  // CHECK-LABEL: func.func @chains
  // CHECK-SAME: dist.name = "x"{{[^%]*}}dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
  // CHECK-SAME: dist.name = "w1"{{[^%]*}}dist.sharding = #dist.sharding<@mesh, {{\[}}["?"], ["tensor", "?"]], []>
  // CHECK-SAME: {dist.name = "w2", dist.role = "param"}
  // CHECK-SAME: dist.name = "w3"{{[^%]*}}dist.sharding = #dist.sharding<@mesh, {{\[}}["?"], ["tensor", "?"]], []>
  // CHECK-SAME: {dist.name = "w4", dist.role = "param"}
  // CHECK-SAME: {dist.name = "w5", dist.role = "param"}
  %0 = torch.aten.mm %x, %w1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,32],f32> -> !torch.vtensor<[8,32],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[8,32],f32> -> !torch.vtensor<[8,32],f32>
  %2 = torch.aten.mm %1, %w2 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[32,16],f32> -> !torch.vtensor<[8,16],f32>
  %3 = torch.aten.mm %2, %w3 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,32],f32> -> !torch.vtensor<[8,32],f32>
  %4 = torch.aten.relu %3 : !torch.vtensor<[8,32],f32> -> !torch.vtensor<[8,32],f32>
  %5 = torch.aten.mm %4, %w4 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[32,16],f32> -> !torch.vtensor<[8,16],f32>
  %6 = torch.aten.mm %5, %w5 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,8],f32> -> !torch.vtensor<[8,8],f32>
  return %6 : !torch.vtensor<[8,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A linear layer's weight is stored transposed: its columns are dim 0. Two projections that are multiplied (a gated
// unit): the gate is annotated, the other follows through the product.
func.func @gated(
    %x: !torch.vtensor<[8,16],f32> {dist.role = "input", dist.name = "x"},
    %gate: !torch.vtensor<[32,16],f32> {dist.role = "param", dist.name = "gate"},
    %up: !torch.vtensor<[32,16],f32> {dist.role = "param", dist.name = "up"},
    %down: !torch.vtensor<[16,32],f32> {dist.role = "param", dist.name = "down"}) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @gated
  // CHECK-SAME: dist.name = "x"{{[^%]*}}dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
  // CHECK-SAME: dist.name = "gate"{{[^%]*}}dist.sharding = #dist.sharding<@mesh, {{\[}}["tensor", "?"], ["?"]], []>
  // CHECK-SAME: {dist.name = "up", dist.role = "param"}
  // CHECK-SAME: {dist.name = "down", dist.role = "param"}
  %0 = torch.aten.t %gate : !torch.vtensor<[32,16],f32> -> !torch.vtensor<[16,32],f32>
  %1 = torch.aten.mm %x, %0 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,32],f32> -> !torch.vtensor<[8,32],f32>
  %2 = torch.aten.t %up : !torch.vtensor<[32,16],f32> -> !torch.vtensor<[16,32],f32>
  %3 = torch.aten.mm %x, %2 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,32],f32> -> !torch.vtensor<[8,32],f32>
  %4 = torch.aten.mul.Tensor %1, %3 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32> -> !torch.vtensor<[8,32],f32>
  %5 = torch.aten.t %down : !torch.vtensor<[16,32],f32> -> !torch.vtensor<[32,16],f32>
  %6 = torch.aten.mm %4, %5 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[32,16],f32> -> !torch.vtensor<[8,16],f32>
  return %6 : !torch.vtensor<[8,16],f32>
}
