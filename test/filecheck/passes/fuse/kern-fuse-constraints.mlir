// RUN: shardc-opt --kern-fuse %s | filecheck %s
// RUN: shardc-opt --pipeline 'kern-fuse{forbid-fusion=aten.add.Tensor+tanh}' %s | filecheck %s --check-prefix=FORBID
// RUN: shardc-opt --pipeline 'kern-fuse{forbid-fusion=0.0+0.1,tanh+exp force-fusion=exp+0.3}' %s | filecheck %s --check-prefix=BOTH

// Pairs of ops by target, by short target, by number (of block and call).
// CHECK: kern.ops = ["aten.add.Tensor", "aten.tanh", "aten.exp", "aten.neg"]
// FORBID: torch.aten.add.Tensor
// FORBID: kern.ops = ["aten.tanh", "aten.exp", "aten.neg"]
// BOTH: torch.aten.add.Tensor
// BOTH: torch.aten.tanh
// BOTH: kern.ops = ["aten.exp", "aten.neg"]
func.func @step(%x: !torch.vtensor<[4,8],f32>, %b: !torch.vtensor<[8],f32>) -> !torch.vtensor<[4,8],f32> {
  %one = torch.constant.int 1
  %0 = torch.aten.add.Tensor %x, %b, %one : !torch.vtensor<[4,8],f32>, !torch.vtensor<[8],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  %1 = torch.aten.tanh %0 : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %2 = torch.aten.exp %1 : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  return %3 : !torch.vtensor<[4,8],f32>
}
