// RUN: shardc-opt --split-input-file --dist-propagate %s | filecheck %s

// Open and closed dims. A dim that ends in "?" may be cut further by what reaches it; one that does not is the user's
// last word. After propagation everything is closed.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// The annotated value keeps its whole dim 1; the relu, which nobody annotated, is open.
// CHECK-LABEL: func.func @closed_stays
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>
func.func @closed_stays(
    %a: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>},
    %b: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>}) -> !torch.vtensor<[8,8],f32> {
  %int1 = torch.constant.int 1
  // CHECK: %0 = torch.aten.relu %arg0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]}
  %0 = torch.aten.relu %a : !torch.vtensor<[8,8],f32> -> !torch.vtensor<[8,8],f32>
  // CHECK: %1 = torch.aten.add.Tensor %0, %arg1, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]}
  %1 = torch.aten.add.Tensor %0, %b, %int1 : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32>, !torch.int -> !torch.vtensor<[8,8],f32>
  return %1 : !torch.vtensor<[8,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Dim by dim: dim 0 of %a is closed, dim 1 open. %b takes both.
// CHECK-LABEL: func.func @one_dim_open
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>
func.func @one_dim_open(
    %a: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["?"]], []>},
    %b: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], ["tensor"]], []>}) -> !torch.vtensor<[8,8],f32> {
  %int1 = torch.constant.int 1
  // CHECK: %0 = torch.aten.add.Tensor %arg0, %arg1, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]}
  %0 = torch.aten.add.Tensor %a, %b, %int1 : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32>, !torch.int -> !torch.vtensor<[8,8],f32>
  return %0 : !torch.vtensor<[8,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Axes are added behind those that are there, never before them.
// CHECK-LABEL: func.func @cut_further
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data", "tensor"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data", "tensor"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["tensor"], []], []>
func.func @cut_further(
    %a: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data", "?"], ["?"]], []>},
    %b: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data", "tensor"], []], []>},
    %c: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["tensor", "?"], ["?"]], []>}) -> (!torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32>) {
  // CHECK: %0 = torch.aten.mul.Tensor %arg0, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data", "tensor"], []], []>]}
  %0 = torch.aten.mul.Tensor %a, %b : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32> -> !torch.vtensor<[8,8],f32>
  // CHECK: %1 = torch.aten.mul.Tensor %arg2, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  %1 = torch.aten.mul.Tensor %c, %b : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32> -> !torch.vtensor<[8,8],f32>
  return %0, %1 : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32>
}
