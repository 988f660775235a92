// RUN: shardc-opt %s --verify-diagnostics --split-input-file

func.func @matrices_are_turned(%l: tensor<64x32xf32>, %r: tensor<8x48x32xf32>, %e: tensor<8xi32>) {
  // expected-error@+1 {{'kern.grouped_matmul' op right has size 48 along k, where another tensor has 32}}
  %out = "kern.grouped_matmul"(%l, %r, %e) : (tensor<64x32xf32>, tensor<8x48x32xf32>, tensor<8xi32>) -> tensor<64x48xf32>
  return
}

// -----

func.func @fewer_ends_than_matrices(%l: tensor<64x32xf32>, %r: tensor<8x32x48xf32>, %e: tensor<7xi32>) {
  // expected-error@+1 {{'kern.grouped_matmul' op ends has size 7 along g, where another tensor has 8}}
  %out = "kern.grouped_matmul"(%l, %r, %e) : (tensor<64x32xf32>, tensor<8x32x48xf32>, tensor<7xi32>) -> tensor<64x48xf32>
  return
}

// -----

func.func @ends_of_64_bits(%l: tensor<64x32xf32>, %r: tensor<8x32x48xf32>, %e: tensor<8xi64>) {
  // expected-error@+1 {{'kern.grouped_matmul' op ends is of torch.int64; it must be of torch.int32}}
  %out = "kern.grouped_matmul"(%l, %r, %e) : (tensor<64x32xf32>, tensor<8x32x48xf32>, tensor<8xi64>) -> tensor<64x48xf32>
  return
}

// -----

func.func @a_batch_of_both(%l: tensor<8x64x32xf32>, %r: tensor<8x32x48xf32>, %e: tensor<8xi32>) {
  // expected-error@+1 {{'kern.grouped_matmul' op left and right have 3 and 3 dims; two have 2, or one of them 3}}
  %out = "kern.grouped_matmul"(%l, %r, %e) : (tensor<8x64x32xf32>, tensor<8x32x48xf32>, tensor<8xi32>) -> tensor<8x64x48xf32>
  return
}

// -----

func.func @one_product_of_all_groups(%l: tensor<32x64xf32>, %r: tensor<64x48xf32>, %e: tensor<8xi32>) {
  // expected-error@+1 {{'kern.grouped_matmul' op out has 2 dims; it must have [g, m, n]}}
  %out = "kern.grouped_matmul"(%l, %r, %e) : (tensor<32x64xf32>, tensor<64x48xf32>, tensor<8xi32>) -> tensor<32x48xf32>
  return
}

// -----

func.func @another_dtype(%l: tensor<64x32xbf16>, %r: tensor<8x32x48xbf16>, %e: tensor<8xi32>) {
  // expected-error@+1 {{'kern.grouped_matmul' op out is of torch.float32; it must be of torch.bfloat16}}
  %out = "kern.grouped_matmul"(%l, %r, %e) : (tensor<64x32xbf16>, tensor<8x32x48xbf16>, tensor<8xi32>) -> tensor<64x48xf32>
  return
}

// -----

func.func @integers(%l: tensor<64x32xi32>, %r: tensor<8x32x48xi32>, %e: tensor<8xi32>) {
  // expected-error@+1 {{'kern.grouped_matmul' op left is of torch.int32; it must be of torch.float32 or torch.float16 or torch.bfloat16}}
  %out = "kern.grouped_matmul"(%l, %r, %e) : (tensor<64x32xi32>, tensor<8x32x48xi32>, tensor<8xi32>) -> tensor<64x48xi32>
  return
}
