// RUN: shardc-opt %s | shardc-opt | filecheck %s

// CHECK-LABEL: @forward
func.func @forward(%0: !torch.vtensor<[64,32],bf16>, %1: !torch.vtensor<[1000,32],bf16>, %2: !torch.vtensor<[64],si64>) {
  %ins = torch.prim.TupleConstruct %0, %1, %2 : !torch.vtensor<[64,32],bf16>, !torch.vtensor<[1000,32],bf16>, !torch.vtensor<[64],si64> -> !torch.tuple<vtensor<[64,32],bf16>, vtensor<[1000,32],bf16>, vtensor<[64],si64>>
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%rows: tensor<64x32xbf16>, %weight: tensor<1000x32xbf16>, %index: tensor<64xi64>):
    // CHECK: %{{.*}}:5 = "kern.linear_cross_entropy"(%{{.*}}, %{{.*}}, %{{.*}}) : (tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<64xi64>) -> (tensor<64xf32>, tensor<64xf32>, tensor<i64>, tensor<64xf32>, tensor<64xf32>)
    %logp, %lse, %wrong, %total, %top = "kern.linear_cross_entropy"(%rows, %weight, %index)
      : (tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<64xi64>) -> (tensor<64xf32>, tensor<64xf32>, tensor<i64>, tensor<64xf32>, tensor<64xf32>)
    %t = builtin.unrealized_conversion_cast %logp, %lse, %wrong : tensor<64xf32>, tensor<64xf32>, tensor<i64> to tuple<tensor<64xf32>, tensor<64xf32>, tensor<i64>>
    "kern.yield"(%t) : (tuple<tensor<64xf32>, tensor<64xf32>, tensor<i64>>) -> ()
  }) {kern.name = "k", kern.checks = [[2, "index {} is out of bounds"]]} : (!torch.tuple<vtensor<[64,32],bf16>, vtensor<[1000,32],bf16>, vtensor<[64],si64>>) -> !torch.tuple<vtensor<[64],f32>, vtensor<[64],f32>, vtensor<[],si64>>
  return
}
