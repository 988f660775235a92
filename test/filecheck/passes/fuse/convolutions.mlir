// RUN: shardc-opt %s --kern-fuse="convolutions=true matmuls=generated" | filecheck %s
// RUN: shardc-opt %s --kern-fuse="matmuls=generated" | filecheck %s --check-prefix CALL

// A convolution that a kernel computes faster than a library becomes one, if the target has such kernels.
// CHECK: "kern.kernel"
// CHECK: "kern.convolution"(%{{.*}}, %{{.*}}) {dilation = [1, 1], groups = 1 : i64, padding = [0, 1], stride = [1, 2]}
// CHECK-SAME: (tensor<2x3x8x9xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x6x5xf32>
// CHECK-NOT: torch.operator
// CALL-NOT: kern.convolution
// CALL: torch.operator "torch.shardc.convolution_direct"
func.func @main(%x: !torch.vtensor<[2,3,8,9],f32>, %w: !torch.vtensor<[4,3,3,3],f32>) -> !torch.vtensor<[2,4,6,5],f32> {
  %none = torch.constant.none
  %false = torch.constant.bool false
  %i0 = torch.constant.int 0
  %i1 = torch.constant.int 1
  %i2 = torch.constant.int 2
  %s = torch.prim.ListConstruct %i1, %i2 : (!torch.int, !torch.int) -> !torch.list<int>
  %p = torch.prim.ListConstruct %i0, %i1 : (!torch.int, !torch.int) -> !torch.list<int>
  %d = torch.prim.ListConstruct %i1, %i1 : (!torch.int, !torch.int) -> !torch.list<int>
  %o = torch.prim.ListConstruct %i0, %i0 : (!torch.int, !torch.int) -> !torch.list<int>
  %y = torch.operator "torch.shardc.convolution_direct"(%x, %w, %none, %s, %p, %d, %false, %o, %i1) : (!torch.vtensor<[2,3,8,9],f32>, !torch.vtensor<[4,3,3,3],f32>, !torch.none, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int) -> !torch.vtensor<[2,4,6,5],f32>
  return %y : !torch.vtensor<[2,4,6,5],f32>
}
