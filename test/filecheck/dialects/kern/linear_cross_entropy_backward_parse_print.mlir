// RUN: shardc-opt %s | shardc-opt | filecheck %s

// CHECK-LABEL: @backward
func.func @backward(%0: !torch.vtensor<[64],f32>, %1: !torch.vtensor<[64,32],bf16>, %2: !torch.vtensor<[1000,32],bf16>, %3: !torch.vtensor<[64],si64>, %4: !torch.vtensor<[64],f32>) {
  %ins = torch.prim.TupleConstruct %0, %1, %2, %3, %4 : !torch.vtensor<[64],f32>, !torch.vtensor<[64,32],bf16>, !torch.vtensor<[1000,32],bf16>, !torch.vtensor<[64],si64>, !torch.vtensor<[64],f32> -> !torch.tuple<vtensor<[64],f32>, vtensor<[64,32],bf16>, vtensor<[1000,32],bf16>, vtensor<[64],si64>, vtensor<[64],f32>>
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%grad: tensor<64xf32>, %rows: tensor<64x32xbf16>, %weight: tensor<1000x32xbf16>, %index: tensor<64xi64>, %lse: tensor<64xf32>):
    // CHECK: %{{.*}}:3 = "kern.linear_cross_entropy_backward"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>, scale = -1.000000e+00 : f64}
    // CHECK-SAME: -> (tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<1000xbf16>)
    %drows, %dweight, %dbias = "kern.linear_cross_entropy_backward"(%grad, %rows, %weight, %index, %lse) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>, scale = -1.0 : f64}
      : (tensor<64xf32>, tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<64xi64>, tensor<64xf32>) -> (tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<1000xbf16>)
    %t = builtin.unrealized_conversion_cast %drows, %dweight : tensor<64x32xbf16>, tensor<1000x32xbf16> to tuple<tensor<64x32xbf16>, tensor<1000x32xbf16>>
    "kern.yield"(%t) : (tuple<tensor<64x32xbf16>, tensor<1000x32xbf16>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[64],f32>, vtensor<[64,32],bf16>, vtensor<[1000,32],bf16>, vtensor<[64],si64>, vtensor<[64],f32>>) -> !torch.tuple<vtensor<[64,32],bf16>, vtensor<[1000,32],bf16>>
  return
}
