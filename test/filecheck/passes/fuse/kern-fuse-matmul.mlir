// RUN: shardc-opt --pipeline 'kern-fuse{matmuls=generated}' --split-input-file %s | filecheck %s
// RUN: shardc-opt --kern-fuse --split-input-file %s | filecheck %s --check-prefix=EXTERN

// A matmul is a contraction; the transposed weight is an index map, the bias and what follows come after it.
// CHECK-LABEL: func.func @linear
// CHECK: "kern.kernel"
// CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<4x8xf32>, %[[W:.*]]: tensor<6x8xf32>, %[[B:.*]]: tensor<6xf32>):
// CHECK: linalg.generic {indexing_maps = [#map, #map1, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[X]], %[[W]]
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[C:.*]]: f32, %[[ACC:.*]]: f32):
// CHECK-NEXT: %[[P:.*]] = arith.mulf %[[A]], %[[C]]
// CHECK-NEXT: %[[S:.*]] = arith.addf %[[P]], %[[ACC]]
// CHECK-NEXT: linalg.yield %[[S]]
// CHECK: iterator_types = ["parallel", "parallel"]
// CHECK: kern.name = "addmm_tanh_0"
// EXTERN-LABEL: func.func @linear
// EXTERN-NOT: kern.kernel
func.func @linear(%x: !torch.vtensor<[4,8],f32>, %w: !torch.vtensor<[6,8],f32>, %b: !torch.vtensor<[6],f32>) -> !torch.vtensor<[4,6],f32> {
  %one = torch.constant.int 1
  %0 = torch.aten.t %w : !torch.vtensor<[6,8],f32> -> !torch.vtensor<[8,6],f32>
  %1 = torch.aten.addmm %b, %x, %0, %one, %one : !torch.vtensor<[6],f32>, !torch.vtensor<[4,8],f32>, !torch.vtensor<[8,6],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,6],f32>
  %2 = torch.aten.tanh %1 : !torch.vtensor<[4,6],f32> -> !torch.vtensor<[4,6],f32>
  return %2 : !torch.vtensor<[4,6],f32>
}

// -----

// A scale before it is part of the contraction's body.
// CHECK-LABEL: func.func @scaled
// CHECK-COUNT-1: linalg.generic
// CHECK-NEXT: ^bb0(%[[X:.*]]: f32, %[[S:.*]]: f32, %[[Y:.*]]: f32, %[[ACC:.*]]: f32):
// CHECK-NEXT: %[[L:.*]] = arith.mulf %[[X]], %[[S]]
// CHECK-NEXT: %[[P:.*]] = arith.mulf %[[L]], %[[Y]]
// CHECK-NOT: linalg.generic
// CHECK-NOT: torch.aten
func.func @scaled(%x: !torch.vtensor<[4,8],f32>, %s: !torch.vtensor<[4,1],f32>, %y: !torch.vtensor<[8,6],f32>) -> !torch.vtensor<[4,6],f32> {
  %0 = torch.aten.mul.Tensor %x, %s : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,8],f32>
  %1 = torch.aten.mm %0, %y : !torch.vtensor<[4,8],f32>, !torch.vtensor<[8,6],f32> -> !torch.vtensor<[4,6],f32>
  return %1 : !torch.vtensor<[4,6],f32>
}
