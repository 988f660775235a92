// RUN: shardc-opt --split-input-file --dist-propagate %s | filecheck %s

// Through matmuls. Their rule is ([i,k],[k,j])->([i,j]) reduce={k}: a cut of rows, of columns or of the contracted dim
// goes on to every operand and result that has it. "?" leaves a dim open; an argument without a sharding is open.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Forward. Only x's batch and the columns of w1 are annotated. The rows of w2 follow: Megatron's pair of cuts.
// CHECK-LABEL: func.func @columns_then_rows
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["tensor"], []], []>
func.func @columns_then_rows(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>},
    %w1: !torch.vtensor<[16,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %w2: !torch.vtensor<[32,16],f32>) -> !torch.vtensor<[8,16],f32> {
  // CHECK: %0 = torch.aten.mm %arg0, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]}
  %0 = torch.aten.mm %x, %w1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,32],f32> -> !torch.vtensor<[8,32],f32>
  // CHECK: %1 = torch.aten.relu %0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]}
  %1 = torch.aten.relu %0 : !torch.vtensor<[8,32],f32> -> !torch.vtensor<[8,32],f32>
  // CHECK: %2 = torch.aten.mm %1, %arg2 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  %2 = torch.aten.mm %1, %w2 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[32,16],f32> -> !torch.vtensor<[8,16],f32>
  return %2 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Backward. The rows of w2 are annotated: the columns of w1 follow from its use, and relu's sharding from its result's.
// CHECK-LABEL: func.func @from_the_end
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["tensor"], []], []>
func.func @from_the_end(
    %x: !torch.vtensor<[8,16],f32>,
    %w1: !torch.vtensor<[16,32],f32>,
    %w2: !torch.vtensor<[32,16],f32> {dist.sharding = #dist.sharding<@mesh, [["tensor"], []], []>}) -> !torch.vtensor<[8,16],f32> {
  // CHECK: %0 = torch.aten.mm %arg0, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>]}
  %0 = torch.aten.mm %x, %w1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,32],f32> -> !torch.vtensor<[8,32],f32>
  // CHECK: %1 = torch.aten.relu %0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>]}
  %1 = torch.aten.relu %0 : !torch.vtensor<[8,32],f32> -> !torch.vtensor<[8,32],f32>
  // CHECK: %2 = torch.aten.mm %1, %arg2 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  %2 = torch.aten.mm %1, %w2 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[32,16],f32> -> !torch.vtensor<[8,16],f32>
  return %2 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Every operand of a batched matmul has the batch; a vector has no rows.
// CHECK-LABEL: func.func @batches_and_biases
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], [], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], [], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["tensor"]], []>
func.func @batches_and_biases(
    %x: !torch.vtensor<[4,8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], [], []], []>},
    %y: !torch.vtensor<[4,16,32],f32>,
    %z: !torch.vtensor<[8,16],f32>, %w: !torch.vtensor<[16,32],f32>,
    %bias: !torch.vtensor<[32],f32> {dist.sharding = #dist.sharding<@mesh, [["tensor"]], []>}) -> (!torch.vtensor<[4,8,32],f32>, !torch.vtensor<[8,32],f32>) {
  %int1 = torch.constant.int 1
  // CHECK: %0 = torch.aten.bmm %arg0, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], [], []], []>]}
  %0 = torch.aten.bmm %x, %y : !torch.vtensor<[4,8,16],f32>, !torch.vtensor<[4,16,32],f32> -> !torch.vtensor<[4,8,32],f32>
  // CHECK: %1 = torch.aten.addmm %arg4, %arg2, %arg3, %int1, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>]}
  %1 = torch.aten.addmm %bias, %z, %w, %int1, %int1 : !torch.vtensor<[32],f32>, !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,32],f32>, !torch.int, !torch.int -> !torch.vtensor<[8,32],f32>
  return %0, %1 : !torch.vtensor<[4,8,32],f32>, !torch.vtensor<[8,32],f32>
}
