// RUN: shardc-opt --kern-fuse %s | filecheck %s

// A draw asks for the place of its element: rows and columns are loops of their own, although everything lies contiguous.
// The number of the draw is an argument, so that kernels which differ in it alone are one.
// CHECK: %[[DRAW:.*]] = torch.constant.int 1
// CHECK: torch.prim.TupleConstruct %{{.*}}, %{{.*}}, %[[DRAW]]
// CHECK: "kern.kernel"
// CHECK-NEXT: ^bb0({{.*}}, %[[NUMBER:.*]]: index):
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: %[[ROW:.*]] = linalg.index 0
// CHECK: arith.index_cast %[[ROW]] : index to i64
// CHECK: %[[COLUMN:.*]] = linalg.index 1
// CHECK: arith.index_cast %[[COLUMN]] : index to i64
// CHECK: arith.index_cast %[[NUMBER]] : index to i64
// CHECK: arith.xori
// CHECK: arith.sitofp {{.*}} : i32 to f32
// CHECK: arith.addf
// CHECK-NOT: torch.operator
func.func @f(%seed: !torch.vtensor<[],si64>, %x: !torch.vtensor<[2,4,8],f32>) -> !torch.vtensor<[2,4,8],f32> {
  %zero = torch.constant.int 0
  %one = torch.constant.int 1
  %two = torch.constant.int 2
  %four = torch.constant.int 4
  %eight = torch.constant.int 8
  %dtype = torch.constant.int 6
  %size = torch.prim.ListConstruct %two, %four, %eight : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %start = torch.prim.ListConstruct %zero, %zero, %zero : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.operator "torch.shardc.uniform"(%seed, %one, %size, %start, %size, %dtype) : (!torch.vtensor<[],si64>, !torch.int, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.int) -> !torch.vtensor<[2,4,8],f32>
  %1 = torch.aten.add.Tensor %0, %x, %one : !torch.vtensor<[2,4,8],f32>, !torch.vtensor<[2,4,8],f32>, !torch.int -> !torch.vtensor<[2,4,8],f32>
  return %1 : !torch.vtensor<[2,4,8],f32>
}
