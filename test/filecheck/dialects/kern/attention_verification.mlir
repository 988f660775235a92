// RUN: shardc-opt %s --verify-diagnostics --split-input-file

#x = affine_map<(b, h, m, n, d, e) -> (b, h, m, d)>
#k = affine_map<(b, h, m, n, d, e) -> (b, h, n, d)>
#v = affine_map<(b, h, m, n, d, e) -> (b, h, n, e)>
#out = affine_map<(b, h, m, n, d, e) -> (b, h, m, e)>
#lse = affine_map<(b, h, m, n, d, e) -> (b, h, m)>

func.func @a_map_is_missing(%x: tensor<1x2x4x8xf32>) {
  // expected-error@+1 {{'kern.attention' op needs an indexing map for each of q, k, v, out, lse, has 4}}
  %out, %lse = "kern.attention"(%x, %x, %x) {indexing_maps = [#x, #k, #v, #out], causal = false, q_offset = 0 : i64, scale = 1.0 : f64, unseen_lse = 0.0 : f64}
    : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4xf32>)
  return
}

// -----

#x = affine_map<(b, h, m, n, d, e) -> (b, h, m, d)>
#k = affine_map<(b, h, m, n, d, e) -> (b, h, n, d)>
#v = affine_map<(b, h, m, n, d, e) -> (b, h, n, e)>
#out = affine_map<(b, h, m, n, d, e) -> (b, h, m, e)>
#lse = affine_map<(b, h, m, n, d, e) -> (b, h, m)>

func.func @sizes_differ(%x: tensor<1x2x4x8xf32>, %k: tensor<1x2x4x6xf32>) {
  // expected-error@+1 {{'kern.attention' op k has size 6 along d, where another tensor has 8}}
  %out, %lse = "kern.attention"(%x, %k, %x) {indexing_maps = [#x, #k, #v, #out, #lse], causal = false, q_offset = 0 : i64, scale = 1.0 : f64, unseen_lse = 0.0 : f64}
    : (tensor<1x2x4x8xf32>, tensor<1x2x4x6xf32>, tensor<1x2x4x8xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4xf32>)
  return
}

// -----

#x = affine_map<(b, h, m, n, d, e) -> (b, h, m, d)>
#k = affine_map<(b, h, m, n, d, e) -> (b, h floordiv 2, n, d)>
#v = affine_map<(b, h, m, n, d, e) -> (b, h, n, e)>
#out = affine_map<(b, h, m, n, d, e) -> (b, h, m, e)>
#lse = affine_map<(b, h, m, n, d, e) -> (b, h, m)>

func.func @groups_differ(%x: tensor<1x2x4x8xf32>, %k: tensor<1x1x4x8xf32>) {
  // expected-error@+1 {{'kern.attention' op v must have one head for each 2 of q's 2}}
  %out, %lse = "kern.attention"(%x, %k, %x) {indexing_maps = [#x, #k, #v, #out, #lse], causal = false, q_offset = 0 : i64, scale = 1.0 : f64, unseen_lse = 0.0 : f64}
    : (tensor<1x2x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x2x4x8xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4xf32>)
  return
}

// -----

#x = affine_map<(b, h, m, n, d, e) -> (b, h, m, d)>
#k = affine_map<(b, h, m, n, d, e) -> (b, h, n + m, d)>
#v = affine_map<(b, h, m, n, d, e) -> (b, h, n, e)>
#out = affine_map<(b, h, m, n, d, e) -> (b, h, m, e)>
#lse = affine_map<(b, h, m, n, d, e) -> (b, h, m)>

func.func @no_dim(%x: tensor<1x2x4x8xf32>) {
  // expected-error@+1 {{'kern.attention' op the map of k may hold dims, h floordiv a number (of keys and values) and 0}}
  %out, %lse = "kern.attention"(%x, %x, %x) {indexing_maps = [#x, #k, #v, #out, #lse], causal = false, q_offset = 0 : i64, scale = 1.0 : f64, unseen_lse = 0.0 : f64}
    : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4xf32>)
  return
}

// -----

#x = affine_map<(b, h, m, n, d, e) -> (b, h, m, d)>
#k = affine_map<(b, h, m, n, d, e) -> (b, h, n, d)>
#v = affine_map<(b, h, m, n, d, e) -> (b, h, n, e)>
#out = affine_map<(b, h, m, n, d, e) -> (b, h, m, e)>
#lse = affine_map<(b, h, m, n, d, e) -> (b, h, m)>

func.func @lse_is_f32(%x: tensor<1x2x4x8xbf16>) {
  // expected-error@+1 {{'kern.attention' op lse is of torch.bfloat16; it must be of torch.float32}}
  %out, %lse = "kern.attention"(%x, %x, %x) {indexing_maps = [#x, #k, #v, #out, #lse], causal = false, q_offset = 0 : i64, scale = 1.0 : f64, unseen_lse = 0.0 : f64}
    : (tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>, tensor<1x2x4x8xbf16>) -> (tensor<1x2x4x8xbf16>, tensor<1x2x4xbf16>)
  return
}
