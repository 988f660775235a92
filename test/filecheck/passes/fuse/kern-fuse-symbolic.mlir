// RUN: shardc-opt --kern-fuse --split-input-file %s | filecheck %s

// s0 rows as [s0 * 64] and as [s0, 64]: one kernel, which takes s0 after its tensors.
#flat = affine_map<()[s0] -> (s0 * 64)>
#rows = affine_map<()[s0] -> (s0, 64)>
#row = affine_map<()[s0] -> (64)>
#number = affine_map<()[s0] -> (s0)>

// CHECK-DAG: #[[FLAT:.*]] = affine_map<()[s0] -> (s0 * 64)>
// CHECK-DAG: #[[ROWS:.*]] = affine_map<()[s0] -> (s0, 64)>
// CHECK-DAG: #[[ROW:.*]] = affine_map<()[s0] -> (64)>
// CHECK: %[[IN:.*]] = torch.prim.TupleConstruct %arg0, %arg1, %arg2
// CHECK: "kern.kernel"(%[[IN]])
// CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<?xf32>, %[[W:.*]]: tensor<64xf32>, %[[N:.*]]: index):
// CHECK: tensor.expand_shape %[[X]] {{\[\[}}0, 1{{\]\]}} output_shape [%[[N]], 64]
// CHECK: tensor.empty(%[[N]]) : tensor<?x64xf32>
// CHECK: kern.hints = array<i64: 7>
// CHECK-SAME: kern.shapes = [#[[FLAT]], #[[ROW]], #[[ROWS]]]
func.func @step(%x: !torch.vtensor<[?],f32> {dist.shape = #flat}, %w: !torch.vtensor<[64],f32> {dist.shape = #row}, %n: !torch.int {dist.shape = #number}) -> !torch.vtensor<[?,64],f32> attributes {dist.symbols = array<i64: 7>} {
  %one = torch.constant.int 1
  %columns = torch.constant.int 64
  %shape = torch.prim.ListConstruct %n, %columns : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.neg %x {dist.shapes = [#flat]} : !torch.vtensor<[?],f32> -> !torch.vtensor<[?],f32>
  %1 = torch.aten.view %0, %shape {dist.shapes = [#rows]} : !torch.vtensor<[?],f32>, !torch.list<int> -> !torch.vtensor<[?,64],f32>
  %2 = torch.aten.add.Tensor %1, %w, %one {dist.shapes = [#rows]} : !torch.vtensor<[?,64],f32>, !torch.vtensor<[64],f32>, !torch.int -> !torch.vtensor<[?,64],f32>
  return %2 : !torch.vtensor<[?,64],f32>
}

// -----

// Two sizes of which nothing is known stay with ATen.
// CHECK-NOT: kern.kernel
// CHECK: torch.aten.neg
// CHECK: torch.aten.exp
func.func @unknown(%x: !torch.vtensor<[?],f32>) -> !torch.vtensor<[?],f32> {
  %0 = torch.aten.neg %x : !torch.vtensor<[?],f32> -> !torch.vtensor<[?],f32>
  %1 = torch.aten.exp %0 : !torch.vtensor<[?],f32> -> !torch.vtensor<[?],f32>
  return %1 : !torch.vtensor<[?],f32>
}
