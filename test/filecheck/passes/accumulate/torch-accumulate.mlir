// RUN: shardc-opt --pipeline "torch-accumulate{micro-batches=2 whole=bias}" %s | filecheck %s

// Forward and backward run on rows 0 to 2 and 2 to 4 of the batch, the buffer goes through both, and the optimizer
// reads the mean of the two gradients. What the option "whole" names is not cut.

// CHECK-LABEL: func.func @step
// CHECK-SAME: %arg2: !torch.vtensor<[4,4],f32>
// CHECK-SAME: %arg3: !torch.vtensor<[1,4],f32>
// CHECK: torch.aten.slice.Tensor %arg2, %int0, %int0, %int2, %int1
// CHECK: [[FIRST:%[0-9]+]] = torch.aten.add.Tensor %{{[0-9]+}}, %arg1,
// CHECK: torch.aten.slice.Tensor %arg2, %int0, %int2, %int4, %int1
// CHECK: [[SECOND:%[0-9]+]] = torch.aten.add.Tensor %{{[0-9]+}}, [[FIRST]],
// CHECK: [[MEAN:%[0-9]+]] = torch.aten.add.Tensor {{.*}}dist.name = "grad:w"
// CHECK: [[W:%[0-9]+]] = torch.aten.sub.Tensor %arg0, [[MEAN]],
// CHECK-NEXT: return %{{[0-9]+}}, [[W]], [[SECOND]]
func.func @step(
    %w: !torch.vtensor<[4],f32> {dist.role = "param", dist.name = "w"},
    %n: !torch.vtensor<[4],f32> {dist.role = "buffer", dist.name = "n"},
    %x: !torch.vtensor<[2,4],f32> {dist.role = "input", dist.name = "x"},
    %bias: !torch.vtensor<[1,4],f32> {dist.role = "input", dist.name = "bias"}) -> (
    !torch.vtensor<[],f32> {dist.role = "loss", dist.name = "loss"},
    !torch.vtensor<[4],f32> {dist.role = "param", dist.name = "w"},
    !torch.vtensor<[4],f32> {dist.role = "buffer", dist.name = "n"}) {
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %false = torch.constant.bool false
  %none = torch.constant.none
  %dims = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.add.Tensor %x, %bias, %int1 {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.vtensor<[1,4],f32>, !torch.int -> !torch.vtensor<[2,4],f32>
  %1 = torch.aten.mul.Tensor %0, %0 {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.vtensor<[2,4],f32> -> !torch.vtensor<[2,4],f32>
  %2 = torch.aten.sum.dim_IntList %1, %dims, %false, %none {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4],f32>
  %3 = torch.aten.add.Tensor %2, %n, %int1 {dist.phase = "forward"} : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.int -> !torch.vtensor<[4],f32>
  %4 = torch.aten.mul.Tensor %2, %w {dist.phase = "forward"} : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %5 = torch.aten.sum.dim_IntList %4, %dims, %false, %none {dist.phase = "forward"} : !torch.vtensor<[4],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[],f32>
  %6 = torch.aten.mul.Scalar %2, %int1 {dist.name = "grad:w", dist.phase = "backward"} : !torch.vtensor<[4],f32>, !torch.int -> !torch.vtensor<[4],f32>
  %7 = torch.aten.sub.Tensor %w, %6, %int1 {dist.phase = "optimizer"} : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.int -> !torch.vtensor<[4],f32>
  return %5, %7, %3 : !torch.vtensor<[],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>
}
