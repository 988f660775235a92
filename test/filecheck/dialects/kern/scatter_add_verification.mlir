// RUN: shardc-opt %s --verify-diagnostics --split-input-file

func.func @index_of_floats(%i: tensor<8xf32>, %u: tensor<8x16xf32>) {
  // expected-error@+1 {{'kern.scatter_add' op index is of torch.float32; it must be of torch.int64 or torch.int32}}
  %out, %wrong = "kern.scatter_add"(%i, %u) {dim = 0 : i64} : (tensor<8xf32>, tensor<8x16xf32>) -> (tensor<50x16xf32>, tensor<i64>)
  return
}

// -----

func.func @no_such_dim(%i: tensor<8xi64>, %u: tensor<8x16xf32>) {
  // expected-error@+1 {{'kern.scatter_add' op dim is 2; out has 2 dims}}
  %out, %wrong = "kern.scatter_add"(%i, %u) {dim = 2 : i64} : (tensor<8xi64>, tensor<8x16xf32>) -> (tensor<50x16xf32>, tensor<i64>)
  return
}

// -----

func.func @updates_have_another_shape(%i: tensor<2x8xi64>, %u: tensor<3x16x16xf32>) {
  // expected-error@+1 {{'kern.scatter_add' op updates is !torch.vtensor<[3,16,16],f32>; with this index and out it must be !torch.vtensor<[3,2,8,16],f32>}}
  %out, %wrong = "kern.scatter_add"(%i, %u) {dim = 1 : i64} : (tensor<2x8xi64>, tensor<3x16x16xf32>) -> (tensor<3x50x16xf32>, tensor<i64>)
  return
}

// -----

func.func @init_has_another_shape(%i: tensor<8xi64>, %u: tensor<8x16xf32>, %init: tensor<16x50xf32>) {
  // expected-error@+1 {{'kern.scatter_add' op init is !torch.vtensor<[16,50],f32>, out !torch.vtensor<[50,16],f32>}}
  %out, %wrong = "kern.scatter_add"(%i, %u, %init) {dim = 0 : i64} : (tensor<8xi64>, tensor<8x16xf32>, tensor<16x50xf32>) -> (tensor<50x16xf32>, tensor<i64>)
  return
}

// -----

func.func @dtypes_differ(%i: tensor<8xi64>, %u: tensor<8x16xbf16>) {
  // expected-error@+1 {{'kern.scatter_add' op updates is of torch.bfloat16, out of torch.float32}}
  %out, %wrong = "kern.scatter_add"(%i, %u) {dim = 0 : i64} : (tensor<8xi64>, tensor<8x16xbf16>) -> (tensor<50x16xf32>, tensor<i64>)
  return
}

// -----

func.func @truth_values(%i: tensor<8xi64>, %u: tensor<8x16xi8>) {
  // expected-error@+1 {{'kern.scatter_add' op cannot add booleans}}
  %out, %wrong = "kern.scatter_add"(%i, %u) {dim = 0 : i64} : (tensor<8xi64>, tensor<8x16xi8>) -> (tensor<50x16xi8>, tensor<i64>)
  return
}

// -----

func.func @wrong_is_no_number(%i: tensor<8xi64>, %u: tensor<8x16xf32>) {
  // expected-error@+1 {{'kern.scatter_add' op wrong is !torch.vtensor<[1],si64>; it must be a single si64}}
  %out, %wrong = "kern.scatter_add"(%i, %u) {dim = 0 : i64} : (tensor<8xi64>, tensor<8x16xf32>) -> (tensor<50x16xf32>, tensor<1xi64>)
  return
}
