// RUN: shardc-opt %s --verify-diagnostics --split-input-file

func.func @of_f64(%x: tensor<2x3x8xf64>, %w: tensor<4x3x3xf64>) {
  // expected-error@+1 {{'kern.convolution' op input is tensor<2x3x8xf64>; it must be a tensor of f32 and known sizes}}
  %y = "kern.convolution"(%x, %w) {stride = [1], padding = [0], dilation = [1], groups = 1 : i64}
    : (tensor<2x3x8xf64>, tensor<4x3x3xf64>) -> tensor<2x4x6xf64>
  return
}

// -----

func.func @without_pixels(%x: tensor<2x3xf32>, %w: tensor<4x3xf32>) {
  // expected-error@+1 {{'kern.convolution' op input is !torch.vtensor<[2,3],f32>; it must have one to three dims of pixels}}
  %y = "kern.convolution"(%x, %w) {stride = [], padding = [], dilation = [], groups = 1 : i64}
    : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @stride_of_zero(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error@+1 {{'kern.convolution' op stride is [0]; it must be 1 numbers, positive or 0 for padding}}
  %y = "kern.convolution"(%x, %w) {stride = [0], padding = [0], dilation = [1], groups = 1 : i64}
    : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x6xf32>
  return
}

// -----

func.func @odd_groups(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error@+1 {{'kern.convolution' op groups is 2; input has 3 channels}}
  %y = "kern.convolution"(%x, %w) {stride = [1], padding = [0], dilation = [1], groups = 2 : i64}
    : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x6xf32>
  return
}

// -----

func.func @other_weight(%x: tensor<2x3x8xf32>, %w: tensor<4x2x3xf32>) {
  // expected-error@+1 {{'kern.convolution' op weight is !torch.vtensor<[4,2,3],f32>; it does not fit input !torch.vtensor<[2,3,8],f32> in 1 groups}}
  %y = "kern.convolution"(%x, %w) {stride = [1], padding = [0], dilation = [1], groups = 1 : i64}
    : (tensor<2x3x8xf32>, tensor<4x2x3xf32>) -> tensor<2x4x6xf32>
  return
}

// -----

func.func @short_bias(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>, %b: tensor<3xf32>) {
  // expected-error@+1 {{'kern.convolution' op bias is !torch.vtensor<[3],f32>; it must have 4 elements}}
  %y = "kern.convolution"(%x, %w, %b) {stride = [1], padding = [0], dilation = [1], groups = 1 : i64}
    : (tensor<2x3x8xf32>, tensor<4x3x3xf32>, tensor<3xf32>) -> tensor<2x4x6xf32>
  return
}

// -----

func.func @other_shape(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error@+1 {{'kern.convolution' op out is !torch.vtensor<[2,4,7],f32>, which is not such a convolution of input !torch.vtensor<[2,3,8],f32>}}
  %y = "kern.convolution"(%x, %w) {stride = [1], padding = [0], dilation = [1], groups = 1 : i64}
    : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x7xf32>
  return
}
