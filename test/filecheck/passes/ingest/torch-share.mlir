// RUN: shardc-opt --torch-share %s | filecheck %s

// Equal calls become one and dead ones go. An ATen op is known to be pure by having a sharding rule.

// Two matmuls see the weight through equal transposes: afterwards through one, so that a reshard of it is shared too.
func.func @equal_views(%x: !torch.vtensor<[8,16],f32>, %w: !torch.vtensor<[16,16],f32>) -> (!torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>) {
  // CHECK-LABEL: func.func @equal_views
  // CHECK: %0 = torch.aten.t %arg1
  // CHECK-NEXT: %1 = torch.aten.mm %arg0, %0
  // CHECK-NEXT: %2 = torch.aten.mm %1, %0
  // CHECK-NEXT: return %1, %2
  %0 = torch.aten.t %w : !torch.vtensor<[16,16],f32> -> !torch.vtensor<[16,16],f32>
  %1 = torch.aten.mm %x, %0 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %2 = torch.aten.t %w : !torch.vtensor<[16,16],f32> -> !torch.vtensor<[16,16],f32>
  %3 = torch.aten.mm %1, %2 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %dead = torch.aten.relu %3 : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  return %1, %3 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>
}

// -----

// Constants are shared as well, so calls that differ in nothing else are equal.
func.func @equal_constants(%x: !torch.vtensor<[8,16],f32>) -> (!torch.vtensor<[16,8],f32>, !torch.vtensor<[16,8],f32>, !torch.vtensor<[8,16],f32>) {
  // CHECK-LABEL: func.func @equal_constants
  // CHECK: %0 = torch.aten.transpose.int %arg0, %int0, %int1
  // CHECK-NEXT: %1 = torch.aten.transpose.int %arg0, %int0, %int0
  // CHECK-NEXT: return %0, %0, %1
  %a = torch.constant.int 0
  %b = torch.constant.int 1
  %c = torch.constant.int 0
  %d = torch.constant.int 1
  %0 = torch.aten.transpose.int %x, %a, %b : !torch.vtensor<[8,16],f32>, !torch.int, !torch.int -> !torch.vtensor<[16,8],f32>
  %1 = torch.aten.transpose.int %x, %c, %d : !torch.vtensor<[8,16],f32>, !torch.int, !torch.int -> !torch.vtensor<[16,8],f32>
  // Not equal to these: other arguments.
  %2 = torch.aten.transpose.int %x, %a, %c : !torch.vtensor<[8,16],f32>, !torch.int, !torch.int -> !torch.vtensor<[8,16],f32>
  return %0, %1, %2 : !torch.vtensor<[16,8],f32>, !torch.vtensor<[16,8],f32>, !torch.vtensor<[8,16],f32>
}

// -----

// Two draws are two draws, and one that nobody reads stays: its effects are not known. Ops of ours are left alone.
func.func @random_and_unknown(%x: !torch.vtensor<[8],f32>) -> (!torch.vtensor<[8],f32>, !torch.vtensor<[8],f32>) {
  // CHECK-LABEL: func.func @random_and_unknown
  // CHECK: %0 = torch.aten.bernoulli %arg0, %none
  // CHECK-NEXT: %1 = torch.aten.bernoulli %arg0, %none
  // CHECK-NEXT: %2 = torch.operator "torch.aten.linalg_matrix_exp"(%arg0)
  // CHECK-NEXT: return %0, %1
  %none = torch.constant.none
  %0 = torch.aten.bernoulli %x, %none : !torch.vtensor<[8],f32>, !torch.none -> !torch.vtensor<[8],f32>
  %1 = torch.aten.bernoulli %x, %none : !torch.vtensor<[8],f32>, !torch.none -> !torch.vtensor<[8],f32>
  %2 = torch.operator "torch.aten.linalg_matrix_exp"(%x) : (!torch.vtensor<[8],f32>) -> !torch.vtensor<[8],f32>
  return %0, %1 : !torch.vtensor<[8],f32>, !torch.vtensor<[8],f32>
}
