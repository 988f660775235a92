// RUN: shardc-opt %s --verify-diagnostics --split-input-file

func.func @rows_of_integers(%r: tensor<64x32xi32>, %w: tensor<1000x32xi32>, %i: tensor<64xi64>) {
  // expected-error@+1 {{'kern.linear_cross_entropy' op rows is of torch.int32; it must be of torch.float32 or torch.float16 or torch.bfloat16}}
  %logp, %lse, %wrong, %total, %top = "kern.linear_cross_entropy"(%r, %w, %i) : (tensor<64x32xi32>, tensor<1000x32xi32>, tensor<64xi64>) -> (tensor<64xf32>, tensor<64xf32>, tensor<i64>, tensor<64xf32>, tensor<64xf32>)
  return
}

// -----

func.func @weight_is_turned(%r: tensor<64x32xf32>, %w: tensor<32x1000xf32>, %i: tensor<64xi64>) {
  // expected-error@+1 {{'kern.linear_cross_entropy' op weight has size 1000 along k, where another tensor has 32}}
  %logp, %lse, %wrong, %total, %top = "kern.linear_cross_entropy"(%r, %w, %i) : (tensor<64x32xf32>, tensor<32x1000xf32>, tensor<64xi64>) -> (tensor<64xf32>, tensor<64xf32>, tensor<i64>, tensor<64xf32>, tensor<64xf32>)
  return
}

// -----

func.func @weight_of_another_dtype(%r: tensor<64x32xbf16>, %w: tensor<1000x32xf32>, %i: tensor<64xi64>) {
  // expected-error@+1 {{'kern.linear_cross_entropy' op weight is of torch.float32; it must be of torch.bfloat16}}
  %logp, %lse, %wrong, %total, %top = "kern.linear_cross_entropy"(%r, %w, %i) : (tensor<64x32xbf16>, tensor<1000x32xf32>, tensor<64xi64>) -> (tensor<64xf32>, tensor<64xf32>, tensor<i64>, tensor<64xf32>, tensor<64xf32>)
  return
}

// -----

func.func @logp_in_16_bits(%r: tensor<64x32xbf16>, %w: tensor<1000x32xbf16>, %i: tensor<64xi64>) {
  // expected-error@+1 {{'kern.linear_cross_entropy' op logp is of torch.bfloat16; it must be of torch.float32}}
  %logp, %lse, %wrong, %total, %top = "kern.linear_cross_entropy"(%r, %w, %i) : (tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<64xi64>) -> (tensor<64xbf16>, tensor<64xf32>, tensor<i64>, tensor<64xf32>, tensor<64xf32>)
  return
}

// -----

func.func @rows_with_a_batch(%r: tensor<2x64x32xf32>, %w: tensor<1000x32xf32>, %i: tensor<64xi64>) {
  // expected-error@+1 {{'kern.linear_cross_entropy' op rows is tensor<2x64x32xf32>; it must be a tensor [m, k] of known sizes}}
  %logp, %lse, %wrong, %total, %top = "kern.linear_cross_entropy"(%r, %w, %i) : (tensor<2x64x32xf32>, tensor<1000x32xf32>, tensor<64xi64>) -> (tensor<64xf32>, tensor<64xf32>, tensor<i64>, tensor<64xf32>, tensor<64xf32>)
  return
}

// -----

func.func @bias_of_another_dtype(%r: tensor<64x32xbf16>, %w: tensor<1000x32xbf16>, %i: tensor<64xi64>, %b: tensor<1000xf32>) {
  // expected-error@+1 {{'kern.linear_cross_entropy' op bias is of torch.float32; it must be of torch.bfloat16}}
  %logp, %lse, %wrong, %total, %top = "kern.linear_cross_entropy"(%r, %w, %i, %b) : (tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<64xi64>, tensor<1000xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<i64>, tensor<64xf32>, tensor<64xf32>)
  return
}
