// RUN: shardc-opt --pipeline dist-propagate,dist-insert-reshards %s | filecheck %s

// A constraint is kept: what it closes stays as it says, whatever its neighbours are cut over.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"]]} : () -> ()

func.func @whole_in_between(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @whole_in_between
  // CHECK: %0 = torch.aten.relu %arg0
  // CHECK-NEXT: %1 = "dist.reshard"(%0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]
  // CHECK-NEXT: %2 = "dist.constraint"(%1) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]
  %0 = torch.aten.relu %x : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = "dist.constraint"(%0) {sharding = #dist.sharding<@mesh, [[], []], []>} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  return %2 : !torch.vtensor<[8,16],f32>
}
