// RUN: shardc-opt --dist-interleave %s | filecheck %s

// Two sequences of four tokens, each shared out two ways, are concatenated along their tokens. Stored are the first halves of
// both, then the second halves: no token moves. A slice of the second sequence is a slice of each device's block.

"dist.mesh"() {sym_name = "mesh", axes = [["context", 2, "space"]]} : () -> ()

// CHECK-LABEL: func.func @step
func.func @step(
    %x: !torch.vtensor<[2,4,3],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [[], ["context"], []], []>},
    %y: !torch.vtensor<[2,4,3],f32> {dist.role = "input", dist.name = "y", dist.sharding = #dist.sharding<@mesh, [[], ["context"], []], []>})
    -> (!torch.vtensor<[2,4,3],f32> {dist.role = "output", dist.name = "z"}) {
  %n1 = torch.constant.int 1
  %n4 = torch.constant.int 4
  %n8 = torch.constant.int 8
  // CHECK:      [[X:%.*]] = torch.aten.reshape %arg0, {{.*}} -> !torch.vtensor<[2,2,2,3],f32>
  // CHECK:      [[Y:%.*]] = torch.aten.reshape %arg1, {{.*}} -> !torch.vtensor<[2,2,2,3],f32>
  // CHECK:      [[BLOCKS:%.*]] = torch.aten.cat {{.*}} -> !torch.vtensor<[2,2,4,3],f32>
  // CHECK:      [[BOTH:%.*]] = torch.aten.reshape [[BLOCKS]], {{.*}} -> !torch.vtensor<[2,8,3],f32>
  %list = torch.prim.ListConstruct %x, %y : (!torch.vtensor<[2,4,3],f32>, !torch.vtensor<[2,4,3],f32>) -> !torch.list<vtensor>
  %0 = torch.aten.cat %list, %n1 {dist.phase = "forward"} : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[2,8,3],f32>
  // CHECK:      [[MADE:%.*]] = torch.aten.relu [[BOTH]]
  %1 = torch.aten.relu %0 {dist.phase = "forward"} : !torch.vtensor<[2,8,3],f32> -> !torch.vtensor<[2,8,3],f32>
  // CHECK:      [[APART:%.*]] = torch.aten.reshape [[MADE]], {{.*}} -> !torch.vtensor<[2,2,4,3],f32>
  // CHECK:      [[SECOND:%.*]] = torch.aten.slice.Tensor [[APART]], {{.*}} -> !torch.vtensor<[2,2,2,3],f32>
  // CHECK:      [[Z:%.*]] = torch.aten.reshape [[SECOND]], {{.*}} -> !torch.vtensor<[2,4,3],f32>
  %2 = torch.aten.slice.Tensor %1, %n1, %n4, %n8, %n1 {dist.phase = "forward"} : !torch.vtensor<[2,8,3],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[2,4,3],f32>
  // CHECK:      return [[Z]]
  return %2 : !torch.vtensor<[2,4,3],f32>
}
