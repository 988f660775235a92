// RUN: shardc-opt %s | shardc-opt | filecheck %s

#q = affine_map<(b, h, m, n, d, e) -> (b, m, h, d)>
#k = affine_map<(b, h, m, n, d, e) -> (b, n, h floordiv 2, d)>
#v = affine_map<(b, h, m, n, d, e) -> (b, n, h floordiv 2, e)>
#padding = affine_map<(b, h, m, n, d, e) -> (b, 0, 0, n)>
#out = affine_map<(b, h, m, n, d, e) -> (b, m, h, e)>
#lse = affine_map<(b, h, m, n, d, e) -> (b, h, m)>

// Heads beside sizes, two query heads to a key head, and a padding mask that is the same for all heads and queries.
// CHECK-LABEL: @grouped
func.func @grouped(%0: !torch.vtensor<[2,5,4,8],f32>, %1: !torch.vtensor<[2,7,2,8],f32>, %2: !torch.vtensor<[2,1,1,7],i1>) {
  %ins = torch.prim.TupleConstruct %0, %1, %2 : !torch.vtensor<[2,5,4,8],f32>, !torch.vtensor<[2,7,2,8],f32>, !torch.vtensor<[2,1,1,7],i1> -> !torch.tuple<vtensor<[2,5,4,8],f32>, vtensor<[2,7,2,8],f32>, vtensor<[2,1,1,7],i1>>
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%q: tensor<2x5x4x8xf32>, %kv: tensor<2x7x2x8xf32>, %mask: tensor<2x1x1x7xi8>):
    // CHECK: %[[OUT:.*]]:2 = "kern.attention"(%[[Q:.*]], %[[KV:.*]], %[[KV]], %[[MASK:.*]]) {causal = false, indexing_maps = [#map, #map1, #map2, #map3, #map4, #map5], q_offset = 0 : i64, scale = 5.000000e-01 : f64, unseen_lse = 0xFFF0000000000000 : f64}
    // CHECK-SAME: (tensor<2x5x4x8xf32>, tensor<2x7x2x8xf32>, tensor<2x7x2x8xf32>, tensor<2x1x1x7xi8>) -> (tensor<2x5x4x8xf32>, tensor<2x4x5xf32>)
    %out, %lse = "kern.attention"(%q, %kv, %kv, %mask) {indexing_maps = [#q, #k, #v, #padding, #out, #lse], causal = false,
      q_offset = 0 : i64, scale = 0.5 : f64, unseen_lse = 0xFFF0000000000000 : f64}
      : (tensor<2x5x4x8xf32>, tensor<2x7x2x8xf32>, tensor<2x7x2x8xf32>, tensor<2x1x1x7xi8>) -> (tensor<2x5x4x8xf32>, tensor<2x4x5xf32>)
    %t = builtin.unrealized_conversion_cast %out, %lse : tensor<2x5x4x8xf32>, tensor<2x4x5xf32> to tuple<tensor<2x5x4x8xf32>, tensor<2x4x5xf32>>
    "kern.yield"(%t) : (tuple<tensor<2x5x4x8xf32>, tensor<2x4x5xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[2,5,4,8],f32>, vtensor<[2,7,2,8],f32>, vtensor<[2,1,1,7],i1>>) -> !torch.tuple<vtensor<[2,5,4,8],f32>, vtensor<[2,4,5],f32>>
  return
}

#q_plain = affine_map<(b, h, m, n, d, e) -> (b, h, m, d)>
#k_plain = affine_map<(b, h, m, n, d, e) -> (b, h, n, d)>
#v_plain = affine_map<(b, h, m, n, d, e) -> (b, h, n, e)>
#out_plain = affine_map<(b, h, m, n, d, e) -> (b, h, m, e)>

// The place of a rank's rows, behind all tensors.
// CHECK-LABEL: @placed
func.func @placed(%0: !torch.vtensor<[1,2,4,8],f32>, %1: !torch.vtensor<[1,2,16,8],f32>, %2: !torch.int) {
  %ins = torch.prim.TupleConstruct %0, %1, %2 : !torch.vtensor<[1,2,4,8],f32>, !torch.vtensor<[1,2,16,8],f32>, !torch.int -> !torch.tuple<vtensor<[1,2,4,8],f32>, vtensor<[1,2,16,8],f32>, int>
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%q: tensor<1x2x4x8xf32>, %kv: tensor<1x2x16x8xf32>, %place: index):
    // CHECK: %[[PLACE:[^ :]*]]: index):
    // CHECK: "kern.attention"(%{{.*}}, %[[KV:.*]], %[[KV]], %[[PLACE]]) {causal = true
    // CHECK-SAME: (tensor<1x2x4x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, index) ->
    %out, %lse = "kern.attention"(%q, %kv, %kv, %place) {indexing_maps = [#q_plain, #k_plain, #v_plain, #out_plain, #lse], causal = true,
      q_offset = 0 : i64, scale = 0.5 : f64, unseen_lse = 0xFFF0000000000000 : f64}
      : (tensor<1x2x4x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, index) -> (tensor<1x2x4x8xf32>, tensor<1x2x4xf32>)
    %t = builtin.unrealized_conversion_cast %out, %lse : tensor<1x2x4x8xf32>, tensor<1x2x4xf32> to tuple<tensor<1x2x4x8xf32>, tensor<1x2x4xf32>>
    "kern.yield"(%t) : (tuple<tensor<1x2x4x8xf32>, tensor<1x2x4xf32>>) -> ()
  }) {kern.name = "k", kern.hints = array<i64: 6>, kern.shapes = [affine_map<()[s0] -> (1, 2, 4, 8)>, affine_map<()[s0] -> (1, 2, 16, 8)>, affine_map<()[s0] -> (1, 2, 4, 8)>, affine_map<()[s0] -> (1, 2, 4)>]} : (!torch.tuple<vtensor<[1,2,4,8],f32>, vtensor<[1,2,16,8],f32>, int>) -> !torch.tuple<vtensor<[1,2,4,8],f32>, vtensor<[1,2,4],f32>>
  return
}
