// RUN: shardc-opt --kern-fuse %s | filecheck %s

// A concatenation of halves behind the views that make heads: the halves are slices of the argument in a finer shape, and
// each element chooses the one that it comes from by its index among the parts.
// CHECK-LABEL: func.func @rotate
// CHECK: "kern.kernel"
// CHECK: tensor.extract_slice %{{.*}}[0, 0, 4] [12, 3, 4] [1, 1, 1] : tensor<12x3x8xf32> to tensor<12x3x4xf32>
// CHECK: tensor.extract_slice %{{.*}}[0, 0, 0] [12, 3, 4] [1, 1, 1] : tensor<12x3x8xf32> to tensor<12x3x4xf32>
// CHECK: linalg.generic
// CHECK: linalg.index
// CHECK: arith.select
// CHECK-NOT: torch.aten
func.func @rotate(%x: !torch.vtensor<[12,24],f32>) -> !torch.vtensor<[12,3,8],f32> {
  %zero = torch.constant.int 0
  %one = torch.constant.int 1
  %two = torch.constant.int 2
  %three = torch.constant.int 3
  %four = torch.constant.int 4
  %eight = torch.constant.int 8
  %twelve = torch.constant.int 12
  %shape = torch.prim.ListConstruct %twelve, %three, %eight : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %heads = torch.aten.view %x, %shape : !torch.vtensor<[12,24],f32>, !torch.list<int> -> !torch.vtensor<[12,3,8],f32>
  %right = torch.aten.slice.Tensor %heads, %two, %four, %eight, %one : !torch.vtensor<[12,3,8],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[12,3,4],f32>
  %left = torch.aten.slice.Tensor %heads, %two, %zero, %four, %one : !torch.vtensor<[12,3,8],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[12,3,4],f32>
  %turned = torch.aten.neg %right : !torch.vtensor<[12,3,4],f32> -> !torch.vtensor<[12,3,4],f32>
  %parts = torch.prim.ListConstruct %turned, %left : (!torch.vtensor<[12,3,4],f32>, !torch.vtensor<[12,3,4],f32>) -> !torch.list<vtensor<[12,3,4],f32>>
  %all = torch.aten.cat %parts, %two : !torch.list<vtensor<[12,3,4],f32>>, !torch.int -> !torch.vtensor<[12,3,8],f32>
  return %all : !torch.vtensor<[12,3,8],f32>
}
