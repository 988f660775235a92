// RUN: shardc-opt --dist-interleave %s | filecheck %s

// Two sequences of four tokens, which devices share out two ways. A linear layer's view merges them to eight rows: stored are
// the first halves of both, then the second halves, so that the rows are cut where the sequence is. The product does not care,
// and the view back takes the rows apart as they are stored.

"dist.mesh"() {sym_name = "mesh", axes = [["context", 2, "space"]]} : () -> ()

// CHECK-LABEL: func.func @step
// CHECK-NOT:   dist.interleaved
func.func @step(
    %x: !torch.vtensor<[2,4,3],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [[], ["context"], []], []>},
    %w: !torch.vtensor<[3,5],f32> {dist.role = "param", dist.name = "w"})
    -> (!torch.vtensor<[2,4,5],f32> {dist.role = "output", dist.name = "y"}) {
  %n2 = torch.constant.int 2
  %n3 = torch.constant.int 3
  %n4 = torch.constant.int 4
  %n5 = torch.constant.int 5
  %n8 = torch.constant.int 8
  %flat = torch.prim.ListConstruct %n8, %n3 : (!torch.int, !torch.int) -> !torch.list<int>
  %back = torch.prim.ListConstruct %n2, %n4, %n5 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>

  // CHECK:      [[BLOCKS:%.*]] = torch.aten.reshape %arg0, {{.*}} -> !torch.vtensor<[2,2,2,3],f32>
  // CHECK:      [[FIRST:%.*]] = torch.aten.transpose.int [[BLOCKS]], %int0, %int1
  // CHECK:      [[ROWS:%.*]] = torch.aten.reshape [[FIRST]], {{.*}} -> !torch.vtensor<[8,3],f32>
  %0 = torch.aten.view %x, %flat {dist.phase = "forward"} : !torch.vtensor<[2,4,3],f32>, !torch.list<int> -> !torch.vtensor<[8,3],f32>
  // CHECK:      [[MADE:%.*]] = torch.aten.mm [[ROWS]], %arg1
  %1 = torch.aten.mm %0, %w {dist.phase = "forward"} : !torch.vtensor<[8,3],f32>, !torch.vtensor<[3,5],f32> -> !torch.vtensor<[8,5],f32>
  // CHECK:      [[APART:%.*]] = torch.aten.reshape [[MADE]], {{.*}} -> !torch.vtensor<[2,2,2,5],f32>
  // CHECK:      [[TURNED:%.*]] = torch.aten.transpose.int [[APART]], %int0, %int1
  // CHECK:      [[Y:%.*]] = torch.aten.reshape [[TURNED]], {{.*}} -> !torch.vtensor<[2,4,5],f32>
  %2 = torch.aten.view %1, %back {dist.phase = "forward"} : !torch.vtensor<[8,5],f32>, !torch.list<int> -> !torch.vtensor<[2,4,5],f32>
  // CHECK:      return [[Y]]
  return %2 : !torch.vtensor<[2,4,5],f32>
}
