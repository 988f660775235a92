// RUN: shardc-opt --kern-fuse --split-input-file %s | filecheck %s

// Transposes of the operands become index maps; out is laid out with heads beside sizes, and seen as it was; lse as it is.
// CHECK-LABEL: func.func @step
// CHECK: %[[IN:.*]] = torch.prim.TupleConstruct %arg0, %arg1, %arg1 :
// CHECK-NEXT: %[[K:.*]] = "kern.kernel"(%[[IN]])
// CHECK-NEXT: ^bb0(%[[Q:.*]]: tensor<2x20x4x8xf32>, %[[KEYS:.*]]: tensor<2x2x24x8xf32>, %[[V:.*]]: tensor<2x2x24x8xf32>):
// CHECK-NEXT: %[[OUT:.*]]:2 = "kern.attention"(%[[Q]], %[[KEYS]], %[[V]]) {causal = true, {{.*}}q_offset = 4 : i64, scale = 5.000000e-01 : f64
// CHECK-SAME: -> (tensor<2x20x4x8xf32>, tensor<2x4x20xf32>)
// CHECK: kern.name = "attention_0", kern.ops = ["shardc.attention"]
// CHECK: %[[MADE:.*]]:2 = torch.prim.TupleUnpack %[[K]]
// CHECK-NEXT: %[[SEEN:.*]] = torch.aten.transpose.int %[[MADE]]#0
// CHECK: return %[[SEEN]], %[[MADE]]#1
func.func @step(%q: !torch.vtensor<[2,20,4,8],f32>, %kv: !torch.vtensor<[2,2,24,8],f32>) -> (!torch.vtensor<[2,4,20,8],f32>, !torch.vtensor<[2,4,20],f32>) {
  %none = torch.constant.none
  %true = torch.constant.bool true
  %scale = torch.constant.float 0.5
  %offset = torch.constant.int 4
  %one = torch.constant.int 1
  %two = torch.constant.int 2
  %0 = torch.aten.transpose.int %q, %one, %two : !torch.vtensor<[2,20,4,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,4,20,8],f32>
  %1:2 = torch.operator "torch.shardc.attention"(%0, %kv, %kv, %none, %true, %scale, %offset) : (!torch.vtensor<[2,4,20,8],f32>, !torch.vtensor<[2,2,24,8],f32>, !torch.vtensor<[2,2,24,8],f32>, !torch.none, !torch.bool, !torch.float, !torch.int) -> (!torch.vtensor<[2,4,20,8],f32>, !torch.vtensor<[2,4,20],f32>)
  return %1#0, %1#1 : !torch.vtensor<[2,4,20,8],f32>, !torch.vtensor<[2,4,20],f32>
}

// -----

// Where a rank's rows begin is known only as it runs: the kernel is given it behind all tensors.
// CHECK-LABEL: func.func @step
// CHECK: ^bb0(%[[Q:.*]]: tensor<2x4x20x8xf32>, %[[K:.*]]: tensor<2x4x20x8xf32>, %[[V:.*]]: tensor<2x4x20x8xf32>, %[[PLACE:.*]]: index):
// CHECK: "kern.attention"(%[[Q]], %[[K]], %[[V]], %[[PLACE]])
// CHECK-NOT: torch.operator
func.func @step(%q: !torch.vtensor<[2,4,20,8],f32>, %offset: !torch.int) -> !torch.vtensor<[2,4,20,8],f32> {
  %none = torch.constant.none
  %true = torch.constant.bool true
  %scale = torch.constant.float 0.5
  %1:2 = torch.operator "torch.shardc.attention"(%q, %q, %q, %none, %true, %scale, %offset) : (!torch.vtensor<[2,4,20,8],f32>, !torch.vtensor<[2,4,20,8],f32>, !torch.vtensor<[2,4,20,8],f32>, !torch.none, !torch.bool, !torch.float, !torch.int) -> (!torch.vtensor<[2,4,20,8],f32>, !torch.vtensor<[2,4,20],f32>)
  return %1#0 : !torch.vtensor<[2,4,20,8],f32>
}
