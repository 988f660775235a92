// RUN: shardc-opt --split-input-file --dist-propagate=provenance=true %s | filecheck %s

// Where each sharding came from: "self" for one that was written down, "none" for a value that nothing reached, else what it
// follows, and through which ops, with the source line of the last one.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// CHECK-LABEL: func.func @origins
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>
func.func @origins(
    %x: !torch.vtensor<[8,16],f32>,
    %w: !torch.vtensor<[16,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>}) -> (!torch.vtensor<[8,32],f32>, !torch.vtensor<[8,16],f32>) {
  // CHECK: %0 = torch.aten.mm %arg0, %arg1 {dist.origin = ["follows a constraint (model.py:14), through relu at torch/nn/functional.py:9"], dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]}
  %0 = torch.aten.mm %x, %w : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,32],f32> -> !torch.vtensor<[8,32],f32> loc("model.py":12:1)
  // CHECK: %1 = torch.aten.relu %0 {dist.origin = ["follows a constraint (model.py:14)"], dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]}
  %1 = torch.aten.relu %0 : !torch.vtensor<[8,32],f32> -> !torch.vtensor<[8,32],f32> loc(callsite("F.relu"("torch/nn/functional.py":9:1) at "model.py":13:1))
  // CHECK: %2 = "dist.constraint"(%1) {dist.origin = ["self"], dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>], sharding = #dist.sharding<@mesh, {{\[}}["data"], ["?"]], []>}
  %2 = "dist.constraint"(%1) {sharding = #dist.sharding<@mesh, [["data"], ["?"]], []>} : (!torch.vtensor<[8,32],f32>) -> !torch.vtensor<[8,32],f32> loc("model.py":14:1)
  // CHECK: %3 = torch.aten.neg %arg0 {dist.origin = ["follows a constraint (model.py:14), through relu, mm and neg"], dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  %3 = torch.aten.neg %x : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32> loc(unknown)
  return %2, %3 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// CHECK-LABEL: func.func @nothing
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], []], []>
func.func @nothing(%x: !torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32> {
  // CHECK: %0 = torch.aten.neg %arg0 {dist.origin = ["none"], dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  %0 = torch.aten.neg %x : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}
