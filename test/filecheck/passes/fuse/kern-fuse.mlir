// RUN: shardc-opt --kern-fuse --split-input-file %s | filecheck %s

// A chain is one loop over all elements: its dims lie side by side in every tensor. The broadcast row has its own loop.
// CHECK-LABEL: func.func @chain
// CHECK: %[[IN:.*]] = torch.prim.TupleConstruct %arg0, %arg1
// CHECK: "kern.kernel"(%[[IN]])
// CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<2x4x8xf32>, %[[B:.*]]: tensor<8xf32>):
// CHECK-NEXT: %[[ROWS:.*]] = tensor.collapse_shape %[[X]] {{\[\[}}0, 1], [2]] : tensor<2x4x8xf32> into tensor<8x8xf32>
// CHECK: linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%[[ROWS]], %[[B]]
// CHECK: arith.addf
// CHECK-NEXT: math.tanh
// CHECK-NEXT: linalg.yield
// CHECK: kern.name = "add_tanh_0"
// CHECK-SAME: kern.ops = ["aten.add.Tensor", "aten.tanh"]
// CHECK: %[[OUT:.*]] = torch.prim.TupleUnpack
// CHECK-NEXT: return %[[OUT]]
func.func @chain(%x: !torch.vtensor<[2,4,8],f32>, %b: !torch.vtensor<[8],f32>) -> !torch.vtensor<[2,4,8],f32> {
  %one = torch.constant.int 1
  %0 = torch.aten.add.Tensor %x, %b, %one : !torch.vtensor<[2,4,8],f32>, !torch.vtensor<[8],f32>, !torch.int -> !torch.vtensor<[2,4,8],f32>
  %1 = torch.aten.tanh %0 : !torch.vtensor<[2,4,8],f32> -> !torch.vtensor<[2,4,8],f32>
  return %1 : !torch.vtensor<[2,4,8],f32>
}

// -----

// A row reduction with what comes before and after it.
// CHECK-LABEL: func.func @rows
// CHECK-COUNT-1: "kern.kernel"
// CHECK: iterator_types = ["parallel", "reduction"]
// CHECK: iterator_types = ["parallel", "parallel"]
// CHECK-NOT: torch.aten
func.func @rows(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  %none = torch.constant.none
  %true = torch.constant.bool true
  %one = torch.constant.int 1
  %dims = torch.prim.ListConstruct %one : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.abs %x : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %1 = torch.aten.sum.dim_IntList %0, %dims, %true, %none : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  %2 = torch.aten.div.Tensor %x, %1 : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,8],f32>
  return %2 : !torch.vtensor<[4,8],f32>
}

// -----

// A transposed view becomes an index map, a slice a part of the argument.
// CHECK-LABEL: func.func @views
// CHECK: ^bb0(%[[X:.*]]: tensor<4x8xf32>):
// CHECK: %[[PART:.*]] = tensor.extract_slice %[[X]][0, 2] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>
// CHECK-NOT: tensor.extract_slice
// CHECK: indexing_maps = [#map, #map1, #map]
// CHECK-NOT: torch.aten
func.func @views(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,4],f32> {
  %one = torch.constant.int 1
  %two = torch.constant.int 2
  %six = torch.constant.int 6
  %0 = torch.aten.slice.Tensor %x, %one, %two, %six, %one : !torch.vtensor<[4,8],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[4,4],f32>
  %1 = torch.aten.t %0 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %2 = torch.aten.mul.Tensor %0, %1 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  return %3 : !torch.vtensor<[4,4],f32>
}

// -----

// A matmul stays, and parts what is before it from what is after; a lone op stays as well.
// CHECK-LABEL: func.func @matmul
// CHECK: %[[A:.*]] = torch.aten.tanh %arg0
// CHECK: %[[M:.*]] = torch.aten.mm %[[A]], %[[A]]
// CHECK: torch.prim.TupleConstruct %[[M]]
// CHECK: kern.ops = ["aten.neg", "aten.exp"]
func.func @matmul(%x: !torch.vtensor<[4,4],f32>) -> !torch.vtensor<[4,4],f32> {
  %0 = torch.aten.tanh %x : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %1 = torch.aten.mm %0, %0 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %3 = torch.aten.exp %2 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  return %3 : !torch.vtensor<[4,4],f32>
}

// -----

// Kernels that are equal but for their sizes share a name, so that they are compiled once.
// CHECK-LABEL: func.func @twice
// CHECK: kern.flat
// CHECK-SAME: kern.name = "neg_exp_0"
// CHECK: kern.flat
// CHECK-SAME: kern.name = "neg_exp_0"
func.func @twice(%x: !torch.vtensor<[4,4],f32>, %y: !torch.vtensor<[3],f32>) -> (!torch.vtensor<[4,4],f32>, !torch.vtensor<[3],f32>) {
  %0 = torch.aten.neg %x : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %1 = torch.aten.exp %0 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %2 = torch.aten.mm %1, %1 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %3 = torch.aten.neg %y : !torch.vtensor<[3],f32> -> !torch.vtensor<[3],f32>
  %4 = torch.aten.exp %3 : !torch.vtensor<[3],f32> -> !torch.vtensor<[3],f32>
  return %2, %4 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[3],f32>
}

// -----

// The product is read by one kernel, whose result takes its memory: another kernel than the one that makes a new tensor.
// CHECK-LABEL: func.func @in_place
// CHECK-NOT: in_place
// CHECK: kern.name = "neg_exp_0"
// CHECK: torch.aten.mm
// CHECK: in_place = array<i64: 0, 0>
// CHECK-SAME: kern.name = "neg_exp_1"
func.func @in_place(%x: !torch.vtensor<[4,4],f32>) -> !torch.vtensor<[4,4],f32> {
  %0 = torch.aten.neg %x : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %1 = torch.aten.exp %0 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %2 = torch.aten.mm %1, %1 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %4 = torch.aten.exp %3 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  return %4 : !torch.vtensor<[4,4],f32>
}
