// RUN: shardc-opt %s --verify-diagnostics --split-input-file

func.func @f(%x: tensor<4xf32>) {
  %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
  // expected-error@+1 {{'kern.yield' op must end the body of a kern.kernel}}
  "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    // expected-error@+1 {{'kern.yield' op takes a tuple that builtin.unrealized_conversion_cast packs, not tensor<4xf32>}}
    "kern.yield"(%x) : (tensor<4xf32>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}
