// RUN: shardc-opt --pipeline torch-guard-experts %s | filecheck %s

// Rows beyond the room of their experts are counted, and new state is taken only if there are none. A parameter that
// the step does not change stays as it is.
func.func @step(
    %x: !torch.vtensor<[12,8],f32> {dist.role = "input", dist.name = "x"},
    %w: !torch.vtensor<[4,8,16],f32> {dist.role = "param", dist.name = "w"},
    %b: !torch.vtensor<[16],f32> {dist.role = "param", dist.name = "b"},
    %ids: !torch.vtensor<[12],si64> {dist.role = "input", dist.name = "ids"})
    -> (!torch.vtensor<[12,16],f32> {dist.role = "output", dist.name = "y"},
        !torch.vtensor<[4,8,16],f32> {dist.role = "param", dist.name = "w"},
        !torch.vtensor<[16],f32> {dist.role = "param", dist.name = "b"}) {
  // CHECK-LABEL: func.func @step
  // CHECK: !torch.vtensor<[],si64> {dist.name = "experts", dist.role = "overflow"})
  // CHECK: %[[ROWS:.*]] = torch.operator "torch.shardc.beyond_room"(%arg3, %int4{{.*}}, %int1{{.*}}, %int1{{.*}}, %int12
  // CHECK: %[[COUNT:.*]] = torch.aten.sum %[[ROWS]]
  // CHECK: %[[Y:.*]] = torch.operator "torch.shardc.expert_mm"
  // CHECK: %[[NEW:.*]] = torch.aten.relu %arg1
  // CHECK: %[[FITS:.*]] = torch.aten.eq.Scalar %[[COUNT]], %int0
  // CHECK: %[[W:.*]] = torch.aten.where.self %[[FITS]], %[[NEW]], %arg1
  // CHECK-NOT: torch.aten.where.self
  // CHECK: return %[[Y]], %[[W]], %arg2, %[[COUNT]]
  %int1 = torch.constant.int 1
  %share = torch.constant.float 2.500000e-01
  %0 = torch.operator "torch.shardc.expert_mm"(%x, %w, %ids, %int1, %share) : (!torch.vtensor<[12,8],f32>, !torch.vtensor<[4,8,16],f32>, !torch.vtensor<[12],si64>, !torch.int, !torch.float) -> !torch.vtensor<[12,16],f32>
  %1 = torch.aten.relu %w : !torch.vtensor<[4,8,16],f32> -> !torch.vtensor<[4,8,16],f32>
  return %0, %1, %b : !torch.vtensor<[12,16],f32>, !torch.vtensor<[4,8,16],f32>, !torch.vtensor<[16],f32>
}
