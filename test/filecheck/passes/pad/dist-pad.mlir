// RUN: shardc-opt --dist-pad %s | filecheck %s

// A batch of 3 on 2 devices becomes one of 4, wherever it goes: through the view that merges it with the sequence, too.
// The sum over it is given zeros; nothing else minds. Arguments keep their true type beside the padded one.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"]]} : () -> ()

// CHECK:      func.func @step(%arg0: !torch.vtensor<[4,5,6],f32>
// CHECK-SAME:   dist.global_type = !torch.vtensor<[3,5,6],f32>
// CHECK-SAME:   dist.padded = array<i64: 4, 5, 6>
// CHECK-SAME:   %arg1: !torch.vtensor<[6],f32> {dist.name = "w", dist.role = "param"}) -> !torch.vtensor<[6],f32> {
// CHECK-DAG:    [[ROWS:%[0-9a-z]+]] = torch.constant.int 20
// CHECK:        [[FLAT:%[0-9]+]] = torch.aten.view %arg0, %{{[0-9]+}} : !torch.vtensor<[4,5,6],f32>, !torch.list<int> -> !torch.vtensor<[20,6],f32>
// CHECK:        [[MOVED:%[0-9]+]] = torch.aten.add.Tensor [[FLAT]], %arg1, {{.*}} : {{.*}} -> !torch.vtensor<[20,6],f32>
// CHECK:        [[PLACE:%[0-9]+]] = torch.aten.arange {{.*}} -> !torch.vtensor<[4],si64>
// CHECK:        [[KEPT:%[0-9]+]] = torch.aten.lt.Scalar [[PLACE]], %int3 : {{.*}} -> !torch.vtensor<[4],i1>
// CHECK:        torch.aten.expand {{.*}} -> !torch.vtensor<[1,4,5],i1>
// CHECK:        [[MASK:%[0-9]+]] = torch.aten.reshape {{.*}} -> !torch.vtensor<[20,1],i1>
// CHECK:        [[FILLED:%[0-9]+]] = torch.aten.where.ScalarOther [[MASK]], [[MOVED]], %float0.0{{.*}} -> !torch.vtensor<[20,6],f32>
// CHECK:        [[SUM:%[0-9]+]] = torch.aten.sum.dim_IntList [[FILLED]]
// CHECK:        return [[SUM]] : !torch.vtensor<[6],f32>
func.func @step(
    %x: !torch.vtensor<[3,5,6],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [["data"], [], []], []>},
    %w: !torch.vtensor<[6],f32> {dist.role = "param", dist.name = "w"}) -> !torch.vtensor<[6],f32> {
  %rows = torch.constant.int 15
  %columns = torch.constant.int 6
  %dim = torch.constant.int 0
  %one = torch.constant.int 1
  %keep = torch.constant.bool false
  %none = torch.constant.none
  %shape = torch.prim.ListConstruct %rows, %columns : (!torch.int, !torch.int) -> !torch.list<int>
  %dims = torch.prim.ListConstruct %dim : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.view %x, %shape : !torch.vtensor<[3,5,6],f32>, !torch.list<int> -> !torch.vtensor<[15,6],f32>
  %1 = torch.aten.add.Tensor %0, %w, %one : !torch.vtensor<[15,6],f32>, !torch.vtensor<[6],f32>, !torch.int -> !torch.vtensor<[15,6],f32>
  %2 = torch.aten.sum.dim_IntList %1, %dims, %keep, %none : !torch.vtensor<[15,6],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[6],f32>
  return %2 : !torch.vtensor<[6],f32>
}
