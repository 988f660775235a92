// RUN: shardc-opt --split-input-file --dist-propagate %s | filecheck %s

// What annotations disagree on does not spread; what was given is never taken back; the order of ops does not matter.
// Which side of a disagreement moves is decided later, by dist-insert-reshards.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Two axes for one dim: nothing in common, so the sum is told nothing.
// CHECK-LABEL: func.func @different_axes
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["tensor"], []], []>
func.func @different_axes(
    %a: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>},
    %b: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["tensor"], []], []>}) -> !torch.vtensor<[8,8],f32> {
  %int1 = torch.constant.int 1
  // CHECK: %0 = torch.aten.add.Tensor %arg0, %arg1, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  %0 = torch.aten.add.Tensor %a, %b, %int1 : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32>, !torch.int -> !torch.vtensor<[8,8],f32>
  return %0 : !torch.vtensor<[8,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// One list begins with the other: the longer one wins, the closed operand keeps its own.
// CHECK-LABEL: func.func @longer_list
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data", "tensor"], []], []>
func.func @longer_list(
    %a: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>},
    %b: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data", "tensor"], []], []>}) -> !torch.vtensor<[8,8],f32> {
  %int1 = torch.constant.int 1
  // CHECK: %0 = torch.aten.add.Tensor %arg0, %arg1, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data", "tensor"], []], []>]}
  %0 = torch.aten.add.Tensor %a, %b, %int1 : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32>, !torch.int -> !torch.vtensor<[8,8],f32>
  return %0 : !torch.vtensor<[8,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// The other order of the same axes has no common beginning.
// CHECK-LABEL: func.func @other_order
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["tensor", "data"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data", "tensor"], []], []>
func.func @other_order(
    %a: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["tensor", "data"], []], []>},
    %b: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data", "tensor"], []], []>}) -> !torch.vtensor<[8,8],f32> {
  %int1 = torch.constant.int 1
  // CHECK: %0 = torch.aten.add.Tensor %arg0, %arg1, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  %0 = torch.aten.add.Tensor %a, %b, %int1 : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32>, !torch.int -> !torch.vtensor<[8,8],f32>
  return %0 : !torch.vtensor<[8,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// One axis for two dims: an axis cuts one dim of a value only. The first dim of the rule takes it, on any run.
// CHECK-LABEL: func.func @two_dims
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["tensor"], []], []>
func.func @two_dims(
    %a: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %b: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["tensor"], []], []>}) -> !torch.vtensor<[8,8],f32> {
  %int1 = torch.constant.int 1
  // CHECK: %0 = torch.aten.add.Tensor %arg0, %arg1, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["tensor"], []], []>]}
  %0 = torch.aten.add.Tensor %a, %b, %int1 : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32>, !torch.int -> !torch.vtensor<[8,8],f32>
  return %0 : !torch.vtensor<[8,8],f32>
}
