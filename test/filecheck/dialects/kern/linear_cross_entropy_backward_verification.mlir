// RUN: shardc-opt %s --verify-diagnostics --split-input-file

func.func @gradients_of_another_shape(%g: tensor<64xf32>, %r: tensor<64x32xf32>, %w: tensor<1000x32xf32>, %i: tensor<64xi64>, %l: tensor<64xf32>) {
  // expected-error@+1 {{'kern.linear_cross_entropy_backward' op dweight has size 32 along n, where another tensor has 1000}}
  %dr, %dw, %db = "kern.linear_cross_entropy_backward"(%g, %r, %w, %i, %l) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64} : (tensor<64xf32>, tensor<64x32xf32>, tensor<1000x32xf32>, tensor<64xi64>, tensor<64xf32>) -> (tensor<64x32xf32>, tensor<32x1000xf32>, tensor<1000xf32>)
  return
}

// -----

func.func @grad_in_16_bits(%g: tensor<64xbf16>, %r: tensor<64x32xbf16>, %w: tensor<1000x32xbf16>, %i: tensor<64xi64>, %l: tensor<64xf32>) {
  // expected-error@+1 {{'kern.linear_cross_entropy_backward' op grad is of torch.bfloat16; it must be of torch.float32}}
  %dr, %dw, %db = "kern.linear_cross_entropy_backward"(%g, %r, %w, %i, %l) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64} : (tensor<64xbf16>, tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<64xi64>, tensor<64xf32>) -> (tensor<64x32xbf16>, tensor<1000x32xbf16>, tensor<1000xbf16>)
  return
}

// -----

func.func @fewer_rows_than_gradients(%g: tensor<32xf32>, %r: tensor<64x32xf32>, %w: tensor<1000x32xf32>, %i: tensor<64xi64>, %l: tensor<64xf32>) {
  // expected-error@+1 {{'kern.linear_cross_entropy_backward' op rows has size 64 along m, where another tensor has 32}}
  %dr, %dw, %db = "kern.linear_cross_entropy_backward"(%g, %r, %w, %i, %l) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>, scale = 1.0 : f64} : (tensor<32xf32>, tensor<64x32xf32>, tensor<1000x32xf32>, tensor<64xi64>, tensor<64xf32>) -> (tensor<64x32xf32>, tensor<1000x32xf32>, tensor<1000xf32>)
  return
}
