// RUN: shardc-opt --split-input-file --pipeline dist-propagate,dist-insert-reshards %s | filecheck %s

// Which operand moves where two disagree. The earlier round wins; within a round the heavier tensors do, as moving the
// lighter one is cheaper; then the first. Afterwards every operand is cut as its user's rule needs.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// The small bias moves to the large operand's cut, not the other way round.
func.func @lighter_moves(
    %bias: !torch.vtensor<[8,1],f32> {dist.sharding = #dist.sharding<@mesh, [["tensor"], []], []>},
    %x: !torch.vtensor<[8,64],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> (!torch.vtensor<[8,64],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) {
  // CHECK-LABEL: func.func @lighter_moves
  // CHECK: %0 = "dist.reshard"(%arg0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>], sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>}
  // CHECK-NEXT: %1 = torch.aten.mul.Tensor %0, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: return %1
  %0 = torch.aten.mul.Tensor %bias, %x : !torch.vtensor<[8,1],f32>, !torch.vtensor<[8,64],f32> -> !torch.vtensor<[8,64],f32>
  return %0 : !torch.vtensor<[8,64],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// "data" can cut the rows of x or those of w (the contracted dim), not both. The batch has it since round 0, the
// parameter took it in round 1 (ZeRO-3): the weight is gathered for the product.
func.func @earlier_round_wins(
    %x: !torch.vtensor<[8,64],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [["data"], []], []>},
    %w: !torch.vtensor<[64,64],f32> {dist.role = "param", dist.name = "w", dist.refine = [[1, "data", -1]]}) -> (!torch.vtensor<[8,64],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) {
  // CHECK-LABEL: func.func @earlier_round_wins
  // CHECK: %0 = "dist.reshard"(%arg1) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  // CHECK-NEXT: %1 = torch.aten.mm %arg0, %0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: return %1
  %0 = torch.aten.mm %x, %w : !torch.vtensor<[8,64],f32>, !torch.vtensor<[64,64],f32> -> !torch.vtensor<[8,64],f32>
  return %0 : !torch.vtensor<[8,64],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// An op without a rule gets whole operands and makes whole results; the next op cuts again, at no cost.
func.func @no_rule(
    %x: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>},
    %y: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> (!torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) {
  // CHECK-LABEL: func.func @no_rule
  // CHECK: %0 = "dist.reshard"(%arg0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  // CHECK-NEXT: %1 = torch.operator "torch.aten.linalg_matrix_exp"(%0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  // CHECK-NEXT: %2 = "dist.reshard"(%1) {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>], sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>}
  // CHECK-NEXT: %3 = torch.aten.mul.Tensor %2, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: return %3
  %0 = torch.operator "torch.aten.linalg_matrix_exp"(%x) : (!torch.vtensor<[8,8],f32>) -> !torch.vtensor<[8,8],f32>
  %1 = torch.aten.mul.Tensor %0, %y : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32> -> !torch.vtensor<[8,8],f32>
  return %1 : !torch.vtensor<[8,8],f32>
}
