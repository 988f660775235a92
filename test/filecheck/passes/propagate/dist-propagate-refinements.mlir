// RUN: shardc-opt --split-input-file --dist-propagate %s | filecheck %s

// dist.refine = [[round, axis, dim]] cuts a value in a later round (dim -1: the first that divides). What a round gave
// is never taken back, so a refinement yields wherever it is in the way. dist.priorities records who came later:
// dist-insert-reshards lets the earlier round win.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// ZeRO's cut of the optimizer state, after tensor parallelism. %m has its columns cut already, by the state's link to
// the parameter's update; its rows take "data". %odd has no dim that divides and stays whole. The parameter itself is
// closed by then: it stays as round 0 left it.
// CHECK-LABEL: func.func @zero_after_tensor
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>
// CHECK-SAME: dist.priorities = {data = 1 : i64}{{[^%]*}}dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[]], []>
func.func @zero_after_tensor(
    %w: !torch.vtensor<[8,16],f32> {dist.role = "param", dist.name = "w", dist.sharding = #dist.sharding<@mesh, [["?"], ["tensor", "?"]], []>},
    %m: !torch.vtensor<[8,16],f32> {dist.role = "opt_state", dist.name = "m", dist.refine = [[1, "data", -1]]},
    %odd: !torch.vtensor<[3],f32> {dist.role = "opt_state", dist.name = "odd", dist.refine = [[1, "data", -1]]})
    -> (!torch.vtensor<[8,16],f32> {dist.role = "param", dist.name = "w"}, !torch.vtensor<[8,16],f32> {dist.role = "opt_state", dist.name = "m"}) {
  %int1 = torch.constant.int 1
  // CHECK: %0 = torch.aten.add.Tensor %arg1, %arg0, %int1 {dist.priorities = {data = 1 : i64}, dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]}
  %0 = torch.aten.add.Tensor %m, %w, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  // CHECK: %1 = torch.aten.sub.Tensor %arg0, %0, %int1 {dist.priorities = {data = 1 : i64}, dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]}
  %1 = torch.aten.sub.Tensor %w, %0, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  return %1, %0 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// The sequence dim (1) of the activations over "tensor", where tensor parallelism leaves room: not between the two
// matmuls, whose hidden dim has the axis, but before them and, by way of the residual, after them.
// CHECK-LABEL: func.func @sequence_around_tensor
// CHECK-SAME: dist.priorities = {tensor = 1 : i64}{{[^%]*}}dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["tensor"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>
func.func @sequence_around_tensor(
    %x: !torch.vtensor<[2,8,16],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [["data"], [], []], []>, dist.refine = [[1, "tensor", 1]]},
    %w1: !torch.vtensor<[32,16],f32> {dist.role = "param", dist.name = "w1", dist.sharding = #dist.sharding<@mesh, [["tensor", "?"], ["?"]], []>},
    %w2: !torch.vtensor<[16,32],f32> {dist.role = "param", dist.name = "w2"}) -> !torch.vtensor<[2,8,16],f32> {
  %none = torch.constant.none
  %int1 = torch.constant.int 1
  // CHECK: %0 = torch.aten.relu %arg0 {dist.priorities = {tensor = 1 : i64}, dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"], []], []>]}
  %0 = torch.aten.relu %x : !torch.vtensor<[2,8,16],f32> -> !torch.vtensor<[2,8,16],f32>
  // CHECK: %1 = torch.aten.linear %0, %arg1, %none {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], [], ["tensor"]], []>]}
  %1 = torch.aten.linear %0, %w1, %none : !torch.vtensor<[2,8,16],f32>, !torch.vtensor<[32,16],f32>, !torch.none -> !torch.vtensor<[2,8,32],f32>
  // CHECK: %2 = torch.aten.linear %1, %arg2, %none {dist.priorities = {tensor = 1 : i64}, dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"], []], []>]}
  %2 = torch.aten.linear %1, %w2, %none : !torch.vtensor<[2,8,32],f32>, !torch.vtensor<[16,32],f32>, !torch.none -> !torch.vtensor<[2,8,16],f32>
  // CHECK: %3 = torch.aten.add.Tensor %arg0, %2, %int1 {dist.priorities = {tensor = 1 : i64}, dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"], []], []>]}
  %3 = torch.aten.add.Tensor %x, %2, %int1 : !torch.vtensor<[2,8,16],f32>, !torch.vtensor<[2,8,16],f32>, !torch.int -> !torch.vtensor<[2,8,16],f32>
  return %3 : !torch.vtensor<[2,8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Rounds in order, whatever the order of arguments: %b's round 1 puts "tensor" on dim 0 before %a's round 2 asks for
// dim 1. The refinement of a gradient stands on the op that makes it.
// CHECK-LABEL: func.func @rounds
// CHECK-SAME: dist.priorities = {tensor = 2 : i64}{{[^%]*}}dist.sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>
// CHECK-SAME: dist.priorities = {tensor = 1 : i64}{{[^%]*}}dist.sharding = #dist.sharding<@mesh, {{\[}}["tensor"], []], []>
func.func @rounds(
    %a: !torch.vtensor<[8,8],f32> {dist.refine = [[2, "tensor", 1]]},
    %b: !torch.vtensor<[8,8],f32> {dist.refine = [[1, "tensor", 0]]}) -> (!torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32>) {
  %int1 = torch.constant.int 1
  // CHECK: %0 = torch.aten.add.Tensor %arg0, %arg1, %int1 {dist.priorities = {tensor = 1 : i64}, dist.shardings = [#dist.sharding<@mesh, {{\[}}["tensor"], []], []>]}
  %0 = torch.aten.add.Tensor %a, %b, %int1 : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32>, !torch.int -> !torch.vtensor<[8,8],f32>
  // CHECK: %1 = torch.aten.neg %0 {dist.name = "grad:w#0", dist.priorities = {data = 1 : i64}, dist.refine = {{\[}}[1, "data", -1]], dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  %1 = torch.aten.neg %0 {dist.name = "grad:w#0", dist.refine = [[1, "data", -1]]} : !torch.vtensor<[8,8],f32> -> !torch.vtensor<[8,8],f32>
  return %0, %1 : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["context", 4, "space"]]} : () -> ()

// A part of the axis splits 2 blocks. In round 0 a refinement over the whole axis takes the place of the part; a later
// round leaves it.
// CHECK-LABEL: func.func @parts_of_an_axis
func.func @parts_of_an_axis(
    %x: !torch.vtensor<[4,2,16],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [[], [#dist.axis<"context", 1, 2>], []], []>})
    -> (!torch.vtensor<[4,2,16],f32>, !torch.vtensor<[4,2,16],f32>) {
  // CHECK: torch.aten.relu %arg0 {dist.refine = {{.*}}, dist.shardings = [#dist.sharding<@mesh, {{\[}}["context"], [], []], []>]}
  %0 = torch.aten.relu %x {dist.refine = [[0, "context", 0]]} : !torch.vtensor<[4,2,16],f32> -> !torch.vtensor<[4,2,16],f32>
  // CHECK: torch.aten.tanh %arg0 {dist.refine = {{.*}}, dist.shardings = [#dist.sharding<@mesh, {{\[}}[], [#dist.axis<"context", 1 : i64, 2 : i64>], []], []>]}
  %1 = torch.aten.tanh %x {dist.refine = [[1, "context", 0]]} : !torch.vtensor<[4,2,16],f32> -> !torch.vtensor<[4,2,16],f32>
  return %0, %1 : !torch.vtensor<[4,2,16],f32>, !torch.vtensor<[4,2,16],f32>
}
