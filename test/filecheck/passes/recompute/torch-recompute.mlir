// RUN: shardc-opt --pipeline "torch-recompute" %s | filecheck %s
// RUN: shardc-opt --pipeline "torch-recompute{policy=selective}" %s | filecheck %s --check-prefix=SELECT

// What goes into a marked call (%0) and what comes out of it (%3) is kept. The backward reads the results of clones,
// which stand in front of their first reader; "selective" keeps the product (%1).

// CHECK-LABEL: func.func @step
// CHECK-NOT: dist.module
// CHECK: [[IN:%[0-9]+]] = torch.aten.tanh %arg1 {dist.phase = "forward"}
// CHECK: [[OUT:%[0-9]+]] = torch.aten.neg %{{[0-9]+}} {dist.phase = "forward"}
// CHECK: [[G:%[0-9]+]] = torch.aten.mul.Tensor [[OUT]], [[OUT]] {dist.phase = "backward"}
// CHECK-NEXT: [[MM:%[0-9]+]] = torch.aten.mm [[IN]], %arg0 {dist.phase = "recompute"}
// CHECK-NEXT: [[EXP:%[0-9]+]] = torch.aten.exp [[MM]] {dist.phase = "recompute"}
// CHECK-NEXT: [[GM:%[0-9]+]] = torch.aten.mul.Tensor [[G]], [[EXP]] {dist.phase = "backward"}
// CHECK-NEXT: torch.aten.mul.Tensor [[GM]], [[MM]] {dist.name = "grad:w", dist.phase = "backward"}
// CHECK-NOT: dist.module

// SELECT: [[IN:%[0-9]+]] = torch.aten.tanh %arg1
// SELECT: [[MM:%[0-9]+]] = torch.aten.mm [[IN]], %arg0 {dist.phase = "forward"}
// SELECT: [[EXP:%[0-9]+]] = torch.aten.exp [[MM]] {dist.phase = "recompute"}
// SELECT-NEXT: [[GM:%[0-9]+]] = torch.aten.mul.Tensor %{{[0-9]+}}, [[EXP]] {dist.phase = "backward"}
// SELECT-NEXT: torch.aten.mul.Tensor [[GM]], [[MM]] {dist.name = "grad:w", dist.phase = "backward"}
func.func @step(
    %w: !torch.vtensor<[4,4],f32> {dist.role = "param", dist.name = "w"},
    %x: !torch.vtensor<[4,4],f32> {dist.role = "input", dist.name = "x"}) -> (
    !torch.vtensor<[],f32> {dist.role = "loss", dist.name = "loss"},
    !torch.vtensor<[4,4],f32> {dist.role = "param", dist.name = "w"}) {
  %none = torch.constant.none
  %0 = torch.aten.tanh %x {dist.phase = "forward"} : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %1 = torch.aten.mm %0, %w {dist.module = "layer", dist.phase = "forward"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %2 = torch.aten.exp %1 {dist.module = "layer", dist.phase = "forward"} : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %3 = torch.aten.neg %2 {dist.module = "layer", dist.phase = "forward"} : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %4 = torch.aten.sum %3, %none {dist.phase = "forward"} : !torch.vtensor<[4,4],f32>, !torch.none -> !torch.vtensor<[],f32>
  %5 = torch.aten.mul.Tensor %3, %3 {dist.phase = "backward"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %6 = torch.aten.mul.Tensor %5, %2 {dist.phase = "backward"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %7 = torch.aten.mul.Tensor %6, %1 {dist.name = "grad:w", dist.phase = "backward"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %8 = torch.aten.mul.Tensor %w, %7 {dist.phase = "optimizer"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  return %4, %8 : !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>
}
