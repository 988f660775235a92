// RUN: shardc-opt --pipeline 'dist-dispatch{copies=layer=3}' %s | filecheck %s

// Rows of expert 3 stay: both of its products are computed while the others travel.
"dist.mesh"() {sym_name = "mesh", axes = [["expert", 2, "space"]]} : () -> ()
func.func @step(
    %x: !torch.vtensor<[16,8],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [["expert"], []], []>},
    %up: !torch.vtensor<[4,8,16],f32> {dist.role = "param", dist.name = "layer.up", dist.sharding = #dist.sharding<@mesh, [["expert"], [], []], []>},
    %down: !torch.vtensor<[4,16,8],f32> {dist.role = "param", dist.name = "layer.down", dist.sharding = #dist.sharding<@mesh, [["expert"], [], []], []>},
    %ids: !torch.vtensor<[16],si64> {dist.role = "input", dist.name = "ids", dist.sharding = #dist.sharding<@mesh, [["expert"]], []>})
    -> !torch.vtensor<[16,8],f32> {
  // CHECK-LABEL: func.func @step
  // CHECK: %[[OWN:.*]] = torch.operator "torch.shardc.copied_ids"(%arg3,
  // CHECK: %[[STAY:.*]] = torch.aten.ge.Scalar %[[OWN]], %int0
  // CHECK: %[[SENT:.*]] = torch.aten.masked_fill.Scalar %arg3, %[[STAY]], %int-1
  // CHECK: torch.operator "torch.shardc.dispatch_ids"(%[[SENT]],
  // CHECK: torch.operator "torch.shardc.dispatch"(%arg0, %[[SENT]], {{.*}}) {{.*}} -> !torch.vtensor<[2,2,8,8],f32>
  // CHECK: %[[ROWS:.*]] = "dist.constraint"({{.*}}) {sharding = #dist.sharding<@mesh, [["expert"], [], [], [], [], ["?"]], []>}
  // CHECK: torch.operator "torch.shardc.pick_experts"(%arg1, {{.*}} -> !torch.vtensor<[1,8,16],f32>
  // CHECK: %[[UP:.*]] = "dist.constraint"({{.*}}) {sharding = #dist.sharding<@mesh, {{\[\[}}], ["?"], ["?"]], []>}
  // CHECK: %[[INNER:.*]] = torch.operator "torch.shardc.expert_mm"(%arg0, %[[UP]], %[[OWN]], %int1, {{.*}} -> !torch.vtensor<[16,16],f32>
  // CHECK: %[[GATE:.*]] = torch.aten.relu %[[INNER]]
  // CHECK: torch.operator "torch.shardc.pick_experts"(%arg2,
  // CHECK: %[[STAYED:.*]] = torch.operator "torch.shardc.expert_mm"(%[[GATE]], {{.*}}, %[[OWN]], %int1, {{.*}} -> !torch.vtensor<[16,8],f32>
  // CHECK: torch.aten.reshape %[[ROWS]]
  // CHECK: torch.operator "torch.shardc.expert_mm"({{.*}}, %arg1,
  // CHECK: torch.operator "torch.shardc.expert_mm"({{.*}}, %arg2,
  // CHECK: %[[BACK:.*]] = torch.operator "torch.shardc.collect"({{.*}}, %[[SENT]], {{.*}} -> !torch.vtensor<[16,8],f32>
  // CHECK: %[[OUT:.*]] = torch.aten.where.self {{.*}}, %[[STAYED]], %[[BACK]]
  // CHECK: return %[[OUT]]
  %int1 = torch.constant.int 1
  %share = torch.constant.float 2.500000e-01
  %0 = torch.operator "torch.shardc.expert_mm"(%x, %up, %ids, %int1, %share) : (!torch.vtensor<[16,8],f32>, !torch.vtensor<[4,8,16],f32>, !torch.vtensor<[16],si64>, !torch.int, !torch.float) -> !torch.vtensor<[16,16],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[16,16],f32> -> !torch.vtensor<[16,16],f32>
  %2 = torch.operator "torch.shardc.expert_mm"(%1, %down, %ids, %int1, %share) : (!torch.vtensor<[16,16],f32>, !torch.vtensor<[4,16,8],f32>, !torch.vtensor<[16],si64>, !torch.int, !torch.float) -> !torch.vtensor<[16,8],f32>
  return %2 : !torch.vtensor<[16,8],f32>
}
