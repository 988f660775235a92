// RUN: shardc-opt --pipeline 'kern-fuse{matmuls=generated grouped-matmuls=true}' --split-input-file %s | filecheck %s
// RUN: shardc-opt --pipeline 'kern-fuse{matmuls=generated}' --split-input-file %s | filecheck %s --check-prefix=CALL
// RUN: shardc-opt --pipeline 'kern-fuse{grouped-matmuls=true}' --split-input-file %s | filecheck %s --check-prefix=CALL

// Rows of experts, and the gradient of their matrices: transposes are read as they lie, names go with the results.
// CHECK-LABEL: func.func @step
// CHECK: "kern.grouped_matmul"(%{{.*}}) {right_turned} : (tensor<64x32xbf16>, tensor<8x48x32xbf16>, tensor<8xi32>) -> tensor<64x48xbf16>
// CHECK: dist.phase = "forward", kern.calls = ["0.1"]
// CHECK: "kern.grouped_matmul"(%{{.*}}) {left_turned} : (tensor<64x48xbf16>, tensor<64x32xbf16>, tensor<8xi32>) -> tensor<8x48x32xbf16>
// CHECK: kern.calls = ["0.3"]
// CHECK: torch.prim.TupleUnpack %{{.*}} {dist.name = "grad:experts#0"}
// CHECK-NOT: aten.
// CALL-LABEL: func.func @step
// CALL-COUNT-2: torch.operator "torch.aten._grouped_mm"
// CALL-NOT: kern.grouped_matmul
func.func @step(%rows: !torch.vtensor<[64,32],bf16>, %w: !torch.vtensor<[8,48,32],bf16>, %ends: !torch.vtensor<[8],si32>, %grad: !torch.vtensor<[64,48],bf16>) -> (!torch.vtensor<[64,48],bf16>, !torch.vtensor<[8,48,32],bf16>) {
  %none = torch.constant.none
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %turned = torch.aten.transpose.int %w, %int1, %int2 : !torch.vtensor<[8,48,32],bf16>, !torch.int, !torch.int -> !torch.vtensor<[8,32,48],bf16>
  %out = torch.operator "torch.aten._grouped_mm"(%rows, %turned, %ends, %none, %none) {dist.phase = "forward"} : (!torch.vtensor<[64,32],bf16>, !torch.vtensor<[8,32,48],bf16>, !torch.vtensor<[8],si32>, !torch.none, !torch.none) -> !torch.vtensor<[64,48],bf16>
  %t = torch.aten.t %grad : !torch.vtensor<[64,48],bf16> -> !torch.vtensor<[48,64],bf16>
  %dw = torch.operator "torch.aten._grouped_mm"(%t, %rows, %ends, %none, %none) {dist.name = "grad:experts", dist.phase = "backward"} : (!torch.vtensor<[48,64],bf16>, !torch.vtensor<[64,32],bf16>, !torch.vtensor<[8],si32>, !torch.none, !torch.none) -> !torch.vtensor<[8,48,32],bf16>
  return %out, %dw : !torch.vtensor<[64,48],bf16>, !torch.vtensor<[8,48,32],bf16>
}

// -----

// Without ends it is a batch of matrices; with a bias, it is more than a product: both stay calls.
// CHECK-LABEL: func.func @step
// CHECK-COUNT-2: torch.operator "torch.aten._grouped_mm"
// CHECK-NOT: kern.grouped_matmul
// CALL-LABEL: func.func @step
func.func @step(%batch: !torch.vtensor<[8,64,32],bf16>, %rows: !torch.vtensor<[64,32],bf16>, %w: !torch.vtensor<[8,32,48],bf16>, %ends: !torch.vtensor<[8],si32>, %bias: !torch.vtensor<[8,48],bf16>) -> (!torch.vtensor<[8,64,48],bf16>, !torch.vtensor<[64,48],bf16>) {
  %none = torch.constant.none
  %both = torch.operator "torch.aten._grouped_mm"(%batch, %w, %none, %none, %none) : (!torch.vtensor<[8,64,32],bf16>, !torch.vtensor<[8,32,48],bf16>, !torch.none, !torch.none, !torch.none) -> !torch.vtensor<[8,64,48],bf16>
  %more = torch.operator "torch.aten._grouped_mm"(%rows, %w, %ends, %bias, %none) : (!torch.vtensor<[64,32],bf16>, !torch.vtensor<[8,32,48],bf16>, !torch.vtensor<[8],si32>, !torch.vtensor<[8,48],bf16>, !torch.none) -> !torch.vtensor<[64,48],bf16>
  return %both, %more : !torch.vtensor<[8,64,48],bf16>, !torch.vtensor<[64,48],bf16>
}
