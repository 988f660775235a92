// RUN: shardc-opt --dist-interleave %s | filecheck %s

// Causal attention over a sequence of eight tokens, which devices share out two ways. In order the second device would see
// three times the columns of the first. The sequence is folded: blocks 0 and 3 come first, then blocks 1 and 2. What the
// user gives is gathered once to be folded, and what she gets is put back.

"dist.mesh"() {sym_name = "mesh", axes = [["context", 2, "space"]]} : () -> ()

// CHECK-LABEL: func.func @step
func.func @step(
    %x: !torch.vtensor<[1,2,8,4],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [[], [], ["context"], []], []>})
    -> (!torch.vtensor<[1,2,8,4],f32> {dist.role = "output", dist.name = "y"}) {
  %none = torch.constant.none
  %true = torch.constant.bool true
  %scale = torch.constant.float 5.000000e-01
  %n0 = torch.constant.int 0
  // CHECK:      [[WHOLE:%.*]] = "dist.constraint"(%arg0) {{.*}}{{\[\[}}"?"], ["?"], [], ["?"]]
  // CHECK:      [[BLOCKS:%.*]] = torch.aten.reshape [[WHOLE]], {{.*}} -> !torch.vtensor<[1,2,1,2,2,2,4],f32>
  // CHECK:      torch.aten.flip
  // CHECK:      [[PAIRS:%.*]] = torch.aten.cat {{.*}} -> !torch.vtensor<[1,2,2,1,2,2,4],f32>
  // CHECK:      [[X:%.*]] = torch.aten.reshape [[PAIRS]], {{.*}} -> !torch.vtensor<[1,2,8,4],f32>
  // CHECK:      [[OUT:%.*]]:2 = torch.operator "torch.shardc.folded_attention"([[X]], [[X]], [[X]], %float5.000000e-01, %int2)
  %0:2 = torch.operator "torch.shardc.attention"(%x, %x, %x, %none, %true, %scale, %n0) {dist.phase = "forward"} : (!torch.vtensor<[1,2,8,4],f32>, !torch.vtensor<[1,2,8,4],f32>, !torch.vtensor<[1,2,8,4],f32>, !torch.none, !torch.bool, !torch.float, !torch.int) -> (!torch.vtensor<[1,2,8,4],f32>, !torch.vtensor<[1,2,8],f32>)
  // CHECK:      [[MADE:%.*]] = "dist.constraint"([[OUT]]#0)
  // CHECK:      torch.aten.reshape [[MADE]], {{.*}} -> !torch.vtensor<[1,2,2,1,2,2,4],f32>
  // CHECK:      [[Y:%.*]] = torch.aten.reshape {{.*}} -> !torch.vtensor<[1,2,8,4],f32>
  // CHECK:      return [[Y]]
  return %0#0 : !torch.vtensor<[1,2,8,4],f32>
}
