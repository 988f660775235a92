// RUN: shardc-opt --pipeline dist-dispatch %s | filecheck %s

// Rows are dispatched once, what treats them one by one is computed where the experts are, and the second product's
// rows come back. The first product is read by rows alone, so that nothing of it comes back.
"dist.mesh"() {sym_name = "mesh", axes = [["expert", 2, "space"]]} : () -> ()
func.func @step(
    %x: !torch.vtensor<[16,8],f32> {dist.role = "input", dist.sharding = #dist.sharding<@mesh, [["expert"], []], []>},
    %up: !torch.vtensor<[4,8,16],f32> {dist.role = "param", dist.sharding = #dist.sharding<@mesh, [["expert"], [], []], []>},
    %down: !torch.vtensor<[4,16,8],f32> {dist.role = "param", dist.sharding = #dist.sharding<@mesh, [["expert"], [], []], []>},
    %ids: !torch.vtensor<[16],si64> {dist.role = "input", dist.sharding = #dist.sharding<@mesh, [["expert"]], []>})
    -> !torch.vtensor<[16,8],f32> {
  // CHECK-LABEL: func.func @step
  // CHECK: torch.operator "torch.shardc.dispatch_ids"(%arg3,
  // CHECK: %[[SENT:.*]] = torch.operator "torch.shardc.dispatch"(%arg0, %arg3, {{.*}}) {{.*}} -> !torch.vtensor<[2,2,8,8],f32>
  // CHECK: "dist.constraint"({{.*}}) {sharding = #dist.sharding<@mesh, [[], [], [], ["expert"], [], ["?"]], []>}
  // CHECK: "dist.constraint"({{.*}}) {sharding = #dist.sharding<@mesh, [["expert"], [], [], [], [], ["?"]], []>}
  // CHECK: %[[UP:.*]] = torch.operator "torch.shardc.expert_mm"({{.*}}, %arg1, {{.*}}, %int2{{.*}}) {{.*}} -> !torch.vtensor<[32,16],f32>
  // CHECK: %[[GATE:.*]] = torch.aten.relu %[[UP]]
  // CHECK: torch.operator "torch.shardc.expert_mm"(%[[GATE]], %arg2, {{.*}}, %int2{{.*}}) {{.*}} -> !torch.vtensor<[32,8],f32>
  // CHECK: "dist.constraint"({{.*}}) {sharding = #dist.sharding<@mesh, [["expert"], [], [], [], [], ["?"]], []>}
  // CHECK: %[[OUT:.*]] = torch.operator "torch.shardc.collect"({{.*}}, %arg3, {{.*}}) {{.*}} -> !torch.vtensor<[16,8],f32>
  // CHECK-NOT: shardc.collect
  // CHECK: return %[[OUT]]
  %int1 = torch.constant.int 1
  %share = torch.constant.float 2.500000e-01
  %0 = torch.operator "torch.shardc.expert_mm"(%x, %up, %ids, %int1, %share) : (!torch.vtensor<[16,8],f32>, !torch.vtensor<[4,8,16],f32>, !torch.vtensor<[16],si64>, !torch.int, !torch.float) -> !torch.vtensor<[16,16],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[16,16],f32> -> !torch.vtensor<[16,16],f32>
  %2 = torch.operator "torch.shardc.expert_mm"(%1, %down, %ids, %int1, %share) : (!torch.vtensor<[16,16],f32>, !torch.vtensor<[4,16,8],f32>, !torch.vtensor<[16],si64>, !torch.int, !torch.float) -> !torch.vtensor<[16,8],f32>
  return %2 : !torch.vtensor<[16,8],f32>
}
