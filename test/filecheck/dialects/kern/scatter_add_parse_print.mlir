// RUN: shardc-opt %s | shardc-opt | filecheck %s

// Rows of a table, of which one adds nothing, from what is there; and a middle dim, from 0, by indices that count from the end.
// CHECK-LABEL: @rows
func.func @rows(%0: !torch.vtensor<[2,8],si64>, %1: !torch.vtensor<[2,8,16],f32>, %2: !torch.vtensor<[50,16],f32>) {
  %ins = torch.prim.TupleConstruct %0, %1, %2 : !torch.vtensor<[2,8],si64>, !torch.vtensor<[2,8,16],f32>, !torch.vtensor<[50,16],f32> -> !torch.tuple<vtensor<[2,8],si64>, vtensor<[2,8,16],f32>, vtensor<[50,16],f32>>
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%index: tensor<2x8xi64>, %updates: tensor<2x8x16xf32>, %init: tensor<50x16xf32>):
    // CHECK: %{{.*}}:2 = "kern.scatter_add"(%[[INDEX:.*]], %[[UPDATES:.*]], %[[INIT:.*]]) {dim = 0 : i64, ignored = 1 : i64}
    // CHECK-SAME: (tensor<2x8xi64>, tensor<2x8x16xf32>, tensor<50x16xf32>) -> (tensor<50x16xf32>, tensor<i64>)
    %out, %wrong = "kern.scatter_add"(%index, %updates, %init) {dim = 0 : i64, ignored = 1 : i64}
      : (tensor<2x8xi64>, tensor<2x8x16xf32>, tensor<50x16xf32>) -> (tensor<50x16xf32>, tensor<i64>)
    %t = builtin.unrealized_conversion_cast %out : tensor<50x16xf32> to tuple<tensor<50x16xf32>>
    "kern.yield"(%t) : (tuple<tensor<50x16xf32>>) -> ()
  }) {kern.name = "k", in_place = array<i64: 0, 2>} : (!torch.tuple<vtensor<[2,8],si64>, vtensor<[2,8,16],f32>, vtensor<[50,16],f32>>) -> !torch.tuple<vtensor<[50,16],f32>>
  return
}

// CHECK-LABEL: @middle
func.func @middle(%0: !torch.vtensor<[8],si32>, %1: !torch.vtensor<[3,8,16],bf16>) {
  %ins = torch.prim.TupleConstruct %0, %1 : !torch.vtensor<[8],si32>, !torch.vtensor<[3,8,16],bf16> -> !torch.tuple<vtensor<[8],si32>, vtensor<[3,8,16],bf16>>
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%index: tensor<8xi32>, %updates: tensor<3x8x16xbf16>):
    // CHECK: "kern.scatter_add"(%{{.*}}, %{{.*}}) {dim = 1 : i64, wraps} : (tensor<8xi32>, tensor<3x8x16xbf16>) -> (tensor<3x5x16xbf16>, tensor<i64>)
    %out, %wrong = "kern.scatter_add"(%index, %updates) {dim = 1 : i64, wraps} : (tensor<8xi32>, tensor<3x8x16xbf16>) -> (tensor<3x5x16xbf16>, tensor<i64>)
    %t = builtin.unrealized_conversion_cast %out, %wrong : tensor<3x5x16xbf16>, tensor<i64> to tuple<tensor<3x5x16xbf16>, tensor<i64>>
    "kern.yield"(%t) : (tuple<tensor<3x5x16xbf16>, tensor<i64>>) -> ()
  }) {kern.name = "k", kern.checks = [[1, "index {} is out of range"]]} : (!torch.tuple<vtensor<[8],si32>, vtensor<[3,8,16],bf16>>) -> !torch.tuple<vtensor<[3,5,16],bf16>, vtensor<[],si64>>
  return
}
