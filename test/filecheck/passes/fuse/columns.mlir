// RUN: shardc-opt --kern-fuse %s | filecheck %s

// A sum over columns beside the full result that it sums.
// CHECK-LABEL: func.func @bias
// CHECK: "kern.kernel"
// CHECK: iterator_types = ["parallel", "parallel"]
// CHECK: iterator_types = ["reduction", "parallel"]
// CHECK-NOT: "kern.kernel"
func.func @bias(%g: !torch.vtensor<[12,24],f32>, %x: !torch.vtensor<[12,24],f32>) -> (!torch.vtensor<[12,24],f32>, !torch.vtensor<[24],f32>) {
  %zero = torch.constant.int 0
  %false = torch.constant.bool false
  %none = torch.constant.none
  %rows = torch.prim.ListConstruct %zero : (!torch.int) -> !torch.list<int>
  %d = torch.aten.tanh_backward %g, %x : !torch.vtensor<[12,24],f32>, !torch.vtensor<[12,24],f32> -> !torch.vtensor<[12,24],f32>
  %sum = torch.aten.sum.dim_IntList %d, %rows, %false, %none : !torch.vtensor<[12,24],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[24],f32>
  return %d, %sum : !torch.vtensor<[12,24],f32>, !torch.vtensor<[24],f32>
}
