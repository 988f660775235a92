// RUN: shardc-opt %s --verify-diagnostics --split-input-file

#q = affine_map<(b, h, m, n, d, e) -> (b, h, m, d)>
#k = affine_map<(b, h, m, n, d, e) -> (b, h, n, d)>
#v = affine_map<(b, h, m, n, d, e) -> (b, h, n, e)>
#out = affine_map<(b, h, m, n, d, e) -> (b, h, m, e)>
#lse = affine_map<(b, h, m, n, d, e) -> (b, h, m)>

func.func @a_gradient_of_another_dtype(%q: tensor<1x2x4x8xf32>, %g: tensor<1x2x4x8xbf16>, %lse: tensor<1x2x4xf32>) {
  // expected-error@+1 {{'kern.attention_backward' op grad_out is of torch.bfloat16; it must be of torch.float32}}
  %dq, %dk, %dv = "kern.attention_backward"(%g, %q, %q, %q, %q, %lse) {indexing_maps = [#out, #q, #k, #v, #out, #lse, #q, #k, #v],
    causal = true, q_offset = 3 : i64, scale = 0.5 : f64, unseen_lse = 0.0 : f64}
    : (tensor<1x2x4x8xbf16>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4xf32>)
    -> (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
  return
}

// -----

#q = affine_map<(b, h, m, n, d, e) -> (b, h, m, d)>
#k = affine_map<(b, h, m, n, d, e) -> (b, h, n, d)>
#v = affine_map<(b, h, m, n, d, e) -> (b, h, n, e)>
#out = affine_map<(b, h, m, n, d, e) -> (b, h, m, e)>
#lse = affine_map<(b, h, m, n, d, e) -> (b, h, m)>

func.func @a_dim_too_few(%q: tensor<1x2x4x8xf32>, %lse: tensor<1x2x4xf32>, %dk: tensor<1x2x4x1xf32>) {
  // expected-error@+1 {{'kern.attention_backward' op the map of dq must hold each of b, h, m, d, not be}}
  %dq, %dk2, %dv = "kern.attention_backward"(%q, %q, %q, %q, %q, %lse) {indexing_maps = [#out, #q, #k, #v, #out, #lse, #lse, #k, #v],
    causal = true, q_offset = 3 : i64, scale = 0.5 : f64, unseen_lse = 0.0 : f64}
    : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4xf32>)
    -> (tensor<1x2x4xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
  return
}
