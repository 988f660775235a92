// RUN: shardc-opt --pipeline dist-insert-reshards %s | filecheck %s

// A sum that one user needs whole and another in pieces is reduced once; the pieces are cut out of the whole.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"]]} : () -> ()

func.func @both(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["data"]], []>},
    %w: !torch.vtensor<[16,4],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>})
    -> (!torch.vtensor<[8,4],f32>, !torch.vtensor<[8,4],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) {
  // CHECK-LABEL: func.func @both
  // CHECK: %[[SUM:.*]] = torch.aten.mm
  // CHECK-NEXT: %[[WHOLE:.*]] = "dist.reshard"(%[[SUM]]) {{.*}}sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  // CHECK-NEXT: %[[PIECE:.*]] = "dist.reshard"(%[[WHOLE]]) {{.*}}sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>}
  %0 = torch.aten.mm %x, %w {dist.shardings = [#dist.sharding<@mesh, [[], []], []>]} : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,4],f32> -> !torch.vtensor<[8,4],f32>
  %1 = torch.aten.relu %0 {dist.shardings = [#dist.sharding<@mesh, [[], []], []>]} : !torch.vtensor<[8,4],f32> -> !torch.vtensor<[8,4],f32>
  %2 = torch.aten.relu %0 {dist.shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : !torch.vtensor<[8,4],f32> -> !torch.vtensor<[8,4],f32>
  return %1, %2 : !torch.vtensor<[8,4],f32>, !torch.vtensor<[8,4],f32>
}
