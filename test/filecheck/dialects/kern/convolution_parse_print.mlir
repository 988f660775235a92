// RUN: shardc-opt %s | shardc-opt | filecheck %s

// A convolution with a bias, and a transposed one of two groups whose result has more pixels.
// CHECK-LABEL: @strided
func.func @strided(%x: tensor<2x3x9x8xf32>, %w: tensor<4x3x3x3xf32>, %b: tensor<4xf32>) {
  // CHECK: "kern.convolution"(%{{.*}}, %{{.*}}, %{{.*}}) {dilation = [1, 2], groups = 1 : i64, padding = [1, 0], stride = [2, 1]}
  // CHECK-SAME: (tensor<2x3x9x8xf32>, tensor<4x3x3x3xf32>, tensor<4xf32>) -> tensor<2x4x5x4xf32>
  %y = "kern.convolution"(%x, %w, %b) {stride = [2, 1], padding = [1, 0], dilation = [1, 2], groups = 1 : i64}
    : (tensor<2x3x9x8xf32>, tensor<4x3x3x3xf32>, tensor<4xf32>) -> tensor<2x4x5x4xf32>
  return
}

// CHECK-LABEL: @transposed
func.func @transposed(%x: tensor<2x4x8xf32>, %w: tensor<4x3x3xf32>) {
  // CHECK: "kern.convolution"(%{{.*}}, %{{.*}}) {dilation = [1], groups = 2 : i64, padding = [1], stride = [2], transposed}
  %y = "kern.convolution"(%x, %w) {stride = [2], padding = [1], dilation = [1], groups = 2 : i64, transposed}
    : (tensor<2x4x8xf32>, tensor<4x3x3xf32>) -> tensor<2x6x16xf32>
  return
}
