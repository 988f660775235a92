// RUN: shardc-opt %s | shardc-opt | filecheck %s

#rows = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#row = affine_map<(d0, d1) -> (d0)>

// A pointwise op and a row sum: two results. The operands' dtypes differ, a bool is a byte.
// CHECK-LABEL: @two_results
func.func @two_results(%0: !torch.vtensor<[4,8],f32>, %1: !torch.vtensor<[8],i1>) -> (!torch.vtensor<[4,8],f32>, !torch.vtensor<[4],f32>) {
  // CHECK: %[[IN:.*]] = torch.prim.TupleConstruct %arg0, %arg1
  %ins = torch.prim.TupleConstruct %0, %1 : !torch.vtensor<[4,8],f32>, !torch.vtensor<[8],i1> -> !torch.tuple<vtensor<[4,8],f32>, vtensor<[8],i1>>
  // CHECK: %[[OUT:.*]] = "kern.kernel"(%[[IN]]) ({
  // CHECK-NEXT: ^bb0(%{{.*}}: tensor<4x8xf32>, %{{.*}}: tensor<8xi8>):
  // CHECK: linalg.generic
  // CHECK: "kern.yield"(%{{.*}}) : (tuple<tensor<4x8xf32>, tensor<4xf32>>) -> ()
  // CHECK-NEXT: }) {config = #kern.config<{rows = 4 : i64}>, kern.name = "masked_sum_0"} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[8],i1>>) -> !torch.tuple<vtensor<[4,8],f32>, vtensor<[4],f32>>
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4x8xf32>, %mask: tensor<8xi8>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<4x8xf32>
    %masked = linalg.generic {indexing_maps = [#rows, #column, #rows], iterator_types = ["parallel", "parallel"]}
        ins(%x, %mask : tensor<4x8xf32>, tensor<8xi8>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: i8, %out: f32):
      %keep = arith.trunci %b : i8 to i1
      %c = arith.select %keep, %a, %zero : f32
      linalg.yield %c : f32
    } -> tensor<4x8xf32>
    %f = tensor.empty() : tensor<4xf32>
    %init = linalg.fill ins(%zero : f32) outs(%f : tensor<4xf32>) -> tensor<4xf32>
    %sum = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
        ins(%masked : tensor<4x8xf32>) outs(%init : tensor<4xf32>) {
    ^bb0(%a: f32, %acc: f32):
      %c = arith.addf %a, %acc : f32
      linalg.yield %c : f32
    } -> tensor<4xf32>
    %t = builtin.unrealized_conversion_cast %masked, %sum : tensor<4x8xf32>, tensor<4xf32> to tuple<tensor<4x8xf32>, tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4x8xf32>, tensor<4xf32>>) -> ()
  }) {kern.name = "masked_sum_0", config = #kern.config<{rows = 4}>}
    : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[8],i1>>) -> !torch.tuple<vtensor<[4,8],f32>, vtensor<[4],f32>>
  %y, %s = torch.prim.TupleUnpack %outs : !torch.tuple<vtensor<[4,8],f32>, vtensor<[4],f32>> -> !torch.vtensor<[4,8],f32>, !torch.vtensor<[4],f32>
  return %y, %s : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4],f32>
}

// CHECK-LABEL: @no_operands
func.func @no_operands() -> !torch.vtensor<[],f64> {
  // CHECK: "kern.kernel"() ({
  %outs = "kern.kernel"() ({
    %one = arith.constant dense<1.0> : tensor<f64>
    %t = builtin.unrealized_conversion_cast %one : tensor<f64> to tuple<tensor<f64>>
    "kern.yield"(%t) : (tuple<tensor<f64>>) -> ()
  }) {kern.name = "one"} : () -> !torch.tuple<vtensor<[],f64>>
  %y = torch.prim.TupleUnpack %outs : !torch.tuple<vtensor<[],f64>> -> !torch.vtensor<[],f64>
  return %y : !torch.vtensor<[],f64>
}

// Sizes that differ from call to call: an integer after the tensors, and every shape in it.
// CHECK-LABEL: @symbolic
func.func @symbolic(%0: !torch.vtensor<[?,8],f32>, %n: !torch.int) -> !torch.vtensor<[?],f32> {
  // CHECK: %[[IN:.*]] = torch.prim.TupleConstruct %arg0, %arg1
  %ins = torch.prim.TupleConstruct %0, %n : !torch.vtensor<[?,8],f32>, !torch.int -> !torch.tuple<vtensor<[?,8],f32>, int>
  // CHECK: "kern.kernel"(%[[IN]]) ({
  // CHECK-NEXT: ^bb0(%{{.*}}: tensor<?x8xf32>, %[[N:.*]]: index):
  // CHECK: arith.muli %[[N]]
  // CHECK: }) {kern.hints = array<i64: 5>, kern.name = "k", kern.shapes = [#{{.*}}, #{{.*}}]} : (!torch.tuple<vtensor<[?,8],f32>, int>) -> !torch.tuple<vtensor<[?],f32>>
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<?x8xf32>, %s: index):
    %eight = arith.constant 8 : index
    %all = arith.muli %s, %eight : index
    %flat = tensor.collapse_shape %x [[0, 1]] : tensor<?x8xf32> into tensor<?xf32>
    %e = tensor.empty(%all) : tensor<?xf32>
    %y = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
        ins(%flat : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%a: f32, %out: f32):
      %c = arith.negf %a : f32
      linalg.yield %c : f32
    } -> tensor<?xf32>
    %t = builtin.unrealized_conversion_cast %y : tensor<?xf32> to tuple<tensor<?xf32>>
    "kern.yield"(%t) : (tuple<tensor<?xf32>>) -> ()
  }) {kern.name = "k", kern.hints = array<i64: 5>, kern.shapes = [affine_map<()[s0] -> (s0, 8)>, affine_map<()[s0] -> (s0 * 8)>]}
    : (!torch.tuple<vtensor<[?,8],f32>, int>) -> !torch.tuple<vtensor<[?],f32>>
  %y = torch.prim.TupleUnpack %outs : !torch.tuple<vtensor<[?],f32>> -> !torch.vtensor<[?],f32>
  return %y : !torch.vtensor<[?],f32>
}

// An element at an index that is computed, and a result that says whether the index was in range.
// CHECK-LABEL: func.func @gathers
func.func @gathers(%0: !torch.vtensor<[7],f32>, %1: !torch.vtensor<[],si64>) -> !torch.vtensor<[],f32> {
  %ins = torch.prim.TupleConstruct %0, %1 : !torch.vtensor<[7],f32>, !torch.vtensor<[],si64> -> !torch.tuple<vtensor<[7],f32>, vtensor<[],si64>>
  // CHECK: tensor.extract %{{.*}}[%{{.*}}] : tensor<7xf32>
  // CHECK: kern.checks = {{\[\[}}1, "index {} is none"]]
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<7xf32>, %i: tensor<i64>):
    %e = tensor.empty() : tensor<f32>
    %y = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
        ins(%i : tensor<i64>) outs(%e : tensor<f32>) {
    ^bb0(%a: i64, %out: f32):
      %at = arith.index_cast %a : i64 to index
      %c = tensor.extract %x[%at] : tensor<7xf32>
      linalg.yield %c : f32
    } -> tensor<f32>
    %t = builtin.unrealized_conversion_cast %y, %i : tensor<f32>, tensor<i64> to tuple<tensor<f32>, tensor<i64>>
    "kern.yield"(%t) : (tuple<tensor<f32>, tensor<i64>>) -> ()
  }) {kern.name = "k", kern.checks = [[1, "index {} is none"]]}
    : (!torch.tuple<vtensor<[7],f32>, vtensor<[],si64>>) -> !torch.tuple<vtensor<[],f32>, vtensor<[],si64>>
  %y:2 = torch.prim.TupleUnpack %outs : !torch.tuple<vtensor<[],f32>, vtensor<[],si64>> -> !torch.vtensor<[],f32>, !torch.vtensor<[],si64>
  return %y#0 : !torch.vtensor<[],f32>
}
