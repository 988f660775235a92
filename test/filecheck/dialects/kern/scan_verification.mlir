// RUN: shardc-opt %s --verify-diagnostics --split-input-file

func.func @means(%x: tensor<8x40xf32>) {
  // expected-error@+1 {{'kern.scan' op kind is 'mean'; it must be one of sum, product, max, min}}
  %out = "kern.scan"(%x) {kind = "mean"} : (tensor<8x40xf32>) -> tensor<8x40xf32>
  return
}

// -----

func.func @no_kind(%x: tensor<8x40xf32>) {
  // expected-error@+1 {{'kern.scan' op kind is None; it must be one of sum, product, max, min}}
  %out = "kern.scan"(%x) : (tensor<8x40xf32>) -> tensor<8x40xf32>
  return
}

// -----

func.func @another_type(%x: tensor<8x40xf32>) {
  // expected-error@+1 {{'kern.scan' op out is tensor<8x40xf64>; it must have the type of x, tensor<8x40xf32>}}
  %out = "kern.scan"(%x) {kind = "sum"} : (tensor<8x40xf32>) -> tensor<8x40xf64>
  return
}

// -----

func.func @bf16(%x: tensor<8x40xbf16>) {
  // expected-error@+1 {{'kern.scan' op x is of torch.bfloat16; it must be of torch.float32 or torch.float64 or torch.int64 or torch.int32}}
  %out = "kern.scan"(%x) {kind = "sum"} : (tensor<8x40xbf16>) -> tensor<8x40xbf16>
  return
}

// -----

func.func @unknown_size(%x: tensor<8x?xf32>) {
  // expected-error@+1 {{'kern.scan' op x is tensor<8x?xf32>; it must be a tensor of known sizes with at least one dim}}
  %out = "kern.scan"(%x) {kind = "sum"} : (tensor<8x?xf32>) -> tensor<8x?xf32>
  return
}
