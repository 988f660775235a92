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

// -----

// Attention of any batch and length: numbers follow its tensors.
#x = affine_map<()[s0, s1] -> (s0, 4, s1, 8)>
#lse = affine_map<()[s0, s1] -> (s0, 4, s1)>

// CHECK-DAG: #[[GIVEN:.*]] = affine_map<()[s0, s1] -> (s0, 4, s1, 8)>
// CHECK-DAG: #[[MADE:.*]] = affine_map<()[s0, s1] -> (s0, s1, 4, 8)>
// CHECK-DAG: #[[SUMS:.*]] = affine_map<()[s0, s1] -> (s0, 4, s1)>
// CHECK-LABEL: func.func @attention
// CHECK: torch.prim.TupleConstruct %arg0, %arg0, %arg0, %[[B:.*]], %[[M:.*]] :
// CHECK: ^bb0(%[[Q:.*]]: tensor<?x4x?x8xf32>, %[[K:.*]]: tensor<?x4x?x8xf32>, %[[V:.*]]: tensor<?x4x?x8xf32>, %{{.*}}: index, %{{.*}}: index):
// CHECK-NEXT: "kern.attention"(%[[Q]], %[[K]], %[[V]])
// CHECK: kern.hints = array<i64: 2, 20>
// CHECK-SAME: kern.shapes = [#[[GIVEN]], #[[GIVEN]], #[[GIVEN]], #[[MADE]], #[[SUMS]]]
func.func @attention(%q: !torch.vtensor<[?,4,?,8],f32> {dist.shape = #x}) -> !torch.vtensor<[?,4,?,8],f32> attributes {dist.symbols = array<i64: 2, 20>} {
  %none = torch.constant.none
  %true = torch.constant.bool true
  %scale = torch.constant.float 0.5
  %offset = torch.constant.int 0
  %1:2 = torch.operator "torch.shardc.attention"(%q, %q, %q, %none, %true, %scale, %offset) {dist.shapes = [#x, #lse]} : (!torch.vtensor<[?,4,?,8],f32>, !torch.vtensor<[?,4,?,8],f32>, !torch.vtensor<[?,4,?,8],f32>, !torch.none, !torch.bool, !torch.float, !torch.int) -> (!torch.vtensor<[?,4,?,8],f32>, !torch.vtensor<[?,4,?],f32>)
  return %1#0 : !torch.vtensor<[?,4,?,8],f32>
}

// -----

// Keys and values of which it is not known that there are as many: the call stays.
#q = affine_map<()[s0, s1] -> (2, 4, s0, 8)>
#v = affine_map<()[s0, s1] -> (2, 4, s1, 8)>
#sums = affine_map<()[s0, s1] -> (2, 4, s0)>

// CHECK-LABEL: func.func @apart
// CHECK-NOT: kern.kernel
func.func @apart(%q: !torch.vtensor<[2,4,?,8],f32> {dist.shape = #q}, %v: !torch.vtensor<[2,4,?,8],f32> {dist.shape = #v}) -> !torch.vtensor<[2,4,?,8],f32> attributes {dist.symbols = array<i64: 20, 20>} {
  %none = torch.constant.none
  %true = torch.constant.bool true
  %scale = torch.constant.float 0.5
  %offset = torch.constant.int 0
  %1:2 = torch.operator "torch.shardc.attention"(%q, %q, %v, %none, %true, %scale, %offset) {dist.shapes = [#q, #sums]} : (!torch.vtensor<[2,4,?,8],f32>, !torch.vtensor<[2,4,?,8],f32>, !torch.vtensor<[2,4,?,8],f32>, !torch.none, !torch.bool, !torch.float, !torch.int) -> (!torch.vtensor<[2,4,?,8],f32>, !torch.vtensor<[2,4,?],f32>)
  return %1#0 : !torch.vtensor<[2,4,?,8],f32>
}
