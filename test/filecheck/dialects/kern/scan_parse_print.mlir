// RUN: shardc-opt %s | shardc-opt | filecheck %s

// CHECK-LABEL: @sums
func.func @sums(%0: !torch.vtensor<[128,4000],f32>) {
  %ins = torch.prim.TupleConstruct %0 : !torch.vtensor<[128,4000],f32> -> !torch.tuple<vtensor<[128,4000],f32>>
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<128x4000xf32>):
    // CHECK: "kern.scan"(%{{.*}}) {kind = "sum"} : (tensor<128x4000xf32>) -> tensor<128x4000xf32>
    %out = "kern.scan"(%x) {kind = "sum"} : (tensor<128x4000xf32>) -> tensor<128x4000xf32>
    %t = builtin.unrealized_conversion_cast %out : tensor<128x4000xf32> to tuple<tensor<128x4000xf32>>
    "kern.yield"(%t) : (tuple<tensor<128x4000xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[128,4000],f32>>) -> !torch.tuple<vtensor<[128,4000],f32>>
  return
}

// CHECK-LABEL: @products_from_the_end
func.func @products_from_the_end(%x: tensor<40xf64>) {
  // CHECK: "kern.scan"(%{{.*}}) {kind = "product", reverse} : (tensor<40xf64>) -> tensor<40xf64>
  %out = "kern.scan"(%x) {kind = "product", reverse} : (tensor<40xf64>) -> tensor<40xf64>
  return
}

// CHECK-LABEL: @minima_of_integers
func.func @minima_of_integers(%x: tensor<4x40xi64>) {
  // CHECK: "kern.scan"(%{{.*}}) {kind = "min"} : (tensor<4x40xi64>) -> tensor<4x40xi64>
  %out = "kern.scan"(%x) {kind = "min"} : (tensor<4x40xi64>) -> tensor<4x40xi64>
  return
}
