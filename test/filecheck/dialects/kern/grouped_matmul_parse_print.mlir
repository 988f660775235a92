// RUN: shardc-opt %s | shardc-opt | filecheck %s

// Eight groups of rows, each with a matrix that lies the other way round.
// CHECK-LABEL: @rows
func.func @rows(%0: !torch.vtensor<[64,32],bf16>, %1: !torch.vtensor<[8,48,32],bf16>, %2: !torch.vtensor<[8],si32>) {
  %ins = torch.prim.TupleConstruct %0, %1, %2 : !torch.vtensor<[64,32],bf16>, !torch.vtensor<[8,48,32],bf16>, !torch.vtensor<[8],si32> -> !torch.tuple<vtensor<[64,32],bf16>, vtensor<[8,48,32],bf16>, vtensor<[8],si32>>
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%left: tensor<64x32xbf16>, %right: tensor<8x48x32xbf16>, %ends: tensor<8xi32>):
    // CHECK: "kern.grouped_matmul"(%{{.*}}, %{{.*}}, %{{.*}}) {right_turned} : (tensor<64x32xbf16>, tensor<8x48x32xbf16>, tensor<8xi32>) -> tensor<64x48xbf16>
    %out = "kern.grouped_matmul"(%left, %right, %ends) {right_turned} : (tensor<64x32xbf16>, tensor<8x48x32xbf16>, tensor<8xi32>) -> tensor<64x48xbf16>
    %t = builtin.unrealized_conversion_cast %out : tensor<64x48xbf16> to tuple<tensor<64x48xbf16>>
    "kern.yield"(%t) : (tuple<tensor<64x48xbf16>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[64,32],bf16>, vtensor<[8,48,32],bf16>, vtensor<[8],si32>>) -> !torch.tuple<vtensor<[64,48],bf16>>
  return
}

// CHECK-LABEL: @columns
func.func @columns(%l: tensor<8x48x32xf32>, %r: tensor<32x64xf32>, %e: tensor<8xi32>) {
  // CHECK: "kern.grouped_matmul"(%{{.*}}, %{{.*}}, %{{.*}}) : (tensor<8x48x32xf32>, tensor<32x64xf32>, tensor<8xi32>) -> tensor<48x64xf32>
  %out = "kern.grouped_matmul"(%l, %r, %e) : (tensor<8x48x32xf32>, tensor<32x64xf32>, tensor<8xi32>) -> tensor<48x64xf32>
  return
}

// The gradient of the matrices.
// CHECK-LABEL: @terms
func.func @terms(%l: tensor<64x32xf16>, %r: tensor<64x48xf16>, %e: tensor<8xi32>) {
  // CHECK: "kern.grouped_matmul"(%{{.*}}, %{{.*}}, %{{.*}}) {left_turned} : (tensor<64x32xf16>, tensor<64x48xf16>, tensor<8xi32>) -> tensor<8x32x48xf16>
  %out = "kern.grouped_matmul"(%l, %r, %e) {left_turned} : (tensor<64x32xf16>, tensor<64x48xf16>, tensor<8xi32>) -> tensor<8x32x48xf16>
  return
}
