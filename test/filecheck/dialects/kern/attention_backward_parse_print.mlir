// RUN: shardc-opt %s | shardc-opt | filecheck %s

#q = affine_map<(b, h, m, n, d, e) -> (b, h, m, d)>
#k = affine_map<(b, h, m, n, d, e) -> (b, h floordiv 2, n, d)>
#v = affine_map<(b, h, m, n, d, e) -> (b, h floordiv 2, n, e)>
#out = affine_map<(b, h, m, n, d, e) -> (b, h, m, e)>
#lse = affine_map<(b, h, m, n, d, e) -> (b, h, m)>

// CHECK-LABEL: @causal
func.func @causal(%q: tensor<1x2x4x8xf32>, %k: tensor<1x1x4x8xf32>, %lse: tensor<1x2x4xf32>) {
  // CHECK: "kern.attention_backward"(%arg0, %arg0, %arg1, %arg1, %arg0, %arg2) {causal = true, indexing_maps = [#map, #map1, #map2, #map3, #map, #map4, #map1, #map2, #map3], q_offset = 3 : i64, scale = 5.000000e-01 : f64, unseen_lse = 0.000000e+00 : f64}
  // CHECK-SAME: (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>)
  %dq, %dk, %dv = "kern.attention_backward"(%q, %q, %k, %k, %q, %lse) {indexing_maps = [#out, #q, #k, #v, #out, #lse, #q, #k, #v],
    causal = true, q_offset = 3 : i64, scale = 0.5 : f64, unseen_lse = 0.0 : f64}
    : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4xf32>)
    -> (tensor<1x2x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>)
  return
}
