// RUN: shardc-opt --pipeline 'dist-dispatch{chunks=2}' %s | filecheck %s

// Both chunks set out before the experts compute the first; its results set out before they compute the second. The
// experts' numbers travel at once, before all.
"dist.mesh"() {sym_name = "mesh", axes = [["expert", 2, "space"]]} : () -> ()
func.func @step(
    %x: !torch.vtensor<[16,8],f32> {dist.role = "input", dist.sharding = #dist.sharding<@mesh, [["expert"], []], []>},
    %up: !torch.vtensor<[4,8,16],f32> {dist.role = "param", dist.sharding = #dist.sharding<@mesh, [["expert"], [], []], []>},
    %down: !torch.vtensor<[4,16,8],f32> {dist.role = "param", dist.sharding = #dist.sharding<@mesh, [["expert"], [], []], []>},
    %ids: !torch.vtensor<[16],si64> {dist.role = "input", dist.sharding = #dist.sharding<@mesh, [["expert"]], []>})
    -> !torch.vtensor<[16,8],f32> {
  // CHECK-LABEL: func.func @step
  // CHECK: torch.operator "torch.shardc.dispatch_ids"(%arg3,
  // CHECK: "dist.constraint"({{.*}}) {sharding = #dist.sharding<@mesh, [["expert"], [], [], [], []], []>}
  // CHECK: torch.operator "torch.shardc.dispatch"(%arg0, %arg3, {{.*}}) {{.*}} -> !torch.vtensor<[2,2,8,8],f32>
  // CHECK: %[[DEALT:.*]] = torch.aten.view {{.*}} -> !torch.vtensor<[2,1,1,2,4,2,8],f32>
  // CHECK: torch.aten.select.int %[[DEALT]], %int5, %int0
  // CHECK: torch.aten.select.int %[[DEALT]], %int5, %int1
  // CHECK: %[[FIRST:.*]] = "dist.constraint"({{.*}}) {sharding = #dist.sharding<@mesh, [["expert"], [], [], [], [], ["?"]], []>}
  // CHECK: %[[SECOND:.*]] = "dist.constraint"({{.*}}) {sharding = #dist.sharding<@mesh, [["expert"], [], [], [], [], ["?"]], []>}
  // CHECK: %[[ROWS:.*]] = torch.aten.reshape %[[FIRST]], {{.*}} -> !torch.vtensor<[16,8],f32>
  // CHECK: torch.operator "torch.shardc.expert_mm"(%[[ROWS]], %arg1, {{.*}}) {{.*}} -> !torch.vtensor<[16,16],f32>
  // CHECK: torch.operator "torch.shardc.expert_mm"({{.*}}, %arg2, {{.*}}) {{.*}} -> !torch.vtensor<[16,8],f32>
  // CHECK: %[[BACK:.*]] = "dist.constraint"({{.*}}) {sharding = #dist.sharding<@mesh, {{\[\[}}], [], [], ["expert"], [], ["?"]], []>}
  // CHECK: torch.aten.reshape %[[SECOND]], {{.*}} -> !torch.vtensor<[16,8],f32>
  // CHECK: torch.operator "torch.shardc.expert_mm"({{.*}}, %arg1,
  // CHECK: torch.operator "torch.shardc.expert_mm"({{.*}}, %arg2,
  // CHECK: %[[LAST:.*]] = "dist.constraint"({{.*}}) {sharding = #dist.sharding<@mesh, {{\[\[}}], [], [], ["expert"], [], ["?"]], []>}
  // CHECK: torch.prim.ListConstruct %[[BACK]], %[[LAST]]
  // CHECK: torch.aten.stack
  // CHECK: %[[OUT:.*]] = torch.operator "torch.shardc.collect"
  // CHECK-NOT: dist.chunk
  // CHECK: return %[[OUT]]
  %int1 = torch.constant.int 1
  %share = torch.constant.float 2.500000e-01
  %0 = torch.operator "torch.shardc.expert_mm"(%x, %up, %ids, %int1, %share) : (!torch.vtensor<[16,8],f32>, !torch.vtensor<[4,8,16],f32>, !torch.vtensor<[16],si64>, !torch.int, !torch.float) -> !torch.vtensor<[16,16],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[16,16],f32> -> !torch.vtensor<[16,16],f32>
  %2 = torch.operator "torch.shardc.expert_mm"(%1, %down, %ids, %int1, %share) : (!torch.vtensor<[16,16],f32>, !torch.vtensor<[4,16,8],f32>, !torch.vtensor<[16],si64>, !torch.int, !torch.float) -> !torch.vtensor<[16,8],f32>
  return %2 : !torch.vtensor<[16,8],f32>
}
