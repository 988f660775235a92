// RUN: shardc-opt --dist-interleave %s | filecheck %s

// A weight of gate and up, which a plan cuts in two: stored are the first halves of both, then the second ones. A slice of
// one is a slice within each device's block, and so is what its gradient is put together of. The state that hangs together
// with the weight is stored as it is.

"dist.mesh"() {sym_name = "mesh", axes = [["tensor", 2, "space"]]} : () -> ()

// CHECK:      func.func @step(%arg0: !torch.vtensor<[12],f32>
// CHECK-SAME:   dist.interleaved = array<i64: 0, 2, 8, 4>
// CHECK-SAME: %arg1: !torch.vtensor<[12],f32>
// CHECK-SAME:   dist.interleaved = array<i64: 0, 2, 8, 4>
// CHECK-SAME: %arg2: !torch.vtensor<[12],f32> {dist.name = "x", dist.role = "input"}
// CHECK-SAME: -> (!torch.vtensor<[12],f32> {dist.interleaved = array<i64: 0, 2, 8, 4>
func.func @step(
    %w: !torch.vtensor<[12],f32> {dist.role = "param", dist.name = "w", dist.sharding = #dist.sharding<@mesh, [["tensor"]], []>},
    %m: !torch.vtensor<[12],f32> {dist.role = "opt_state", dist.name = "w/m"},
    %x: !torch.vtensor<[12],f32> {dist.role = "input", dist.name = "x"})
    -> (!torch.vtensor<[12],f32> {dist.role = "opt_state", dist.name = "w/m"}, !torch.vtensor<[12],f32> {dist.role = "param", dist.name = "w"}, !torch.vtensor<[4],f32> {dist.role = "output", dist.name = "y"}) {
  %d0 = torch.constant.int 0
  %n8 = torch.constant.int 8
  %n12 = torch.constant.int 12
  %one = torch.constant.int 1

  // An input is as its user gives it, and is interleaved to be added.
  // CHECK:      [[FIRST:%.*]] = torch.aten.slice.Tensor %arg2, {{.*}} -> !torch.vtensor<[8],f32>
  // CHECK:      [[SECOND:%.*]] = torch.aten.slice.Tensor %arg2, {{.*}} -> !torch.vtensor<[4],f32>
  // CHECK-DAG:  torch.aten.reshape [[FIRST]], {{.*}} -> !torch.vtensor<[2,4],f32>
  // CHECK-DAG:  torch.aten.reshape [[SECOND]], {{.*}} -> !torch.vtensor<[2,2],f32>
  // CHECK:      torch.aten.cat {{.*}} -> !torch.vtensor<[2,6],f32>
  // CHECK:      [[X:%.*]] = torch.aten.reshape {{.*}} -> !torch.vtensor<[12],f32>
  // CHECK:      [[SUM:%.*]] = torch.aten.add.Tensor %arg0, [[X]],
  %0 = torch.aten.add.Tensor %w, %x, %one {dist.phase = "forward"} : !torch.vtensor<[12],f32>, !torch.vtensor<[12],f32>, !torch.int -> !torch.vtensor<[12],f32>

  // CHECK:      [[BLOCKS:%.*]] = torch.aten.reshape [[SUM]], {{.*}} -> !torch.vtensor<[2,6],f32>
  // CHECK:      [[PART:%.*]] = torch.aten.slice.Tensor [[BLOCKS]], %int1, %int0, %int4, %int1 {{.*}} -> !torch.vtensor<[2,4],f32>
  // CHECK:      [[GATE:%.*]] = torch.aten.reshape [[PART]], {{.*}} -> !torch.vtensor<[8],f32>
  %1 = torch.aten.slice.Tensor %0, %d0, %d0, %n8, %one {dist.phase = "forward"} : !torch.vtensor<[12],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[8],f32>
  // CHECK:      [[UP:%.*]] = torch.aten.reshape {{.*}} -> !torch.vtensor<[4],f32>
  %2 = torch.aten.slice.Tensor %0, %d0, %n8, %n12, %one {dist.phase = "forward"} : !torch.vtensor<[12],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[4],f32>

  // CHECK-DAG:  torch.aten.reshape [[GATE]], {{.*}} -> !torch.vtensor<[2,4],f32>
  // CHECK-DAG:  torch.aten.reshape [[UP]], {{.*}} -> !torch.vtensor<[2,2],f32>
  // CHECK:      torch.aten.cat {{.*}} -> !torch.vtensor<[2,6],f32>
  // CHECK:      [[GRAD:%.*]] = torch.aten.reshape {{.*}} -> !torch.vtensor<[12],f32>
  %list = torch.prim.ListConstruct %1, %2 : (!torch.vtensor<[8],f32>, !torch.vtensor<[4],f32>) -> !torch.list<vtensor>
  %3 = torch.aten.cat %list, %d0 {dist.phase = "backward"} : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[12],f32>
  // CHECK:      [[NEW:%.*]] = torch.aten.mul.Tensor %arg1, [[GRAD]]
  %4 = torch.aten.mul.Tensor %m, %3 {dist.phase = "optimizer"} : !torch.vtensor<[12],f32>, !torch.vtensor<[12],f32> -> !torch.vtensor<[12],f32>
  // CHECK:      [[STEP:%.*]] = torch.aten.mul.Tensor %arg0, [[NEW]]
  %5 = torch.aten.mul.Tensor %w, %4 {dist.phase = "optimizer"} : !torch.vtensor<[12],f32>, !torch.vtensor<[12],f32> -> !torch.vtensor<[12],f32>
  // CHECK:      return [[NEW]], [[STEP]], [[UP]]
  return %4, %5, %2 : !torch.vtensor<[12],f32>, !torch.vtensor<[12],f32>, !torch.vtensor<[4],f32>
}
