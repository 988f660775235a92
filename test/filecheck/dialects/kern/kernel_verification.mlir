// RUN: shardc-opt %s --verify-diagnostics --split-input-file

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op must have an identifier as its kern.name, not None}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op must have an identifier as its kern.name, not "two words"}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "two words"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op config must be a #kern.config, not 4}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k", config = 4} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op config: rows must be an integer of at least 1, not 0}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k", config = #kern.config<{rows = 0}>} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op body argument 0 must be the builtin tensor of !torch.vtensor<[4],f32>, not tensor<4xf64>}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf64>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf64> to tuple<tensor<4xf64>>
    "kern.yield"(%t) : (tuple<tensor<4xf64>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op must have 1 body arguments, not 0}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0:
    %x = tensor.empty() : tensor<4xf32>
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op yielded value 0 must be the builtin tensor of !torch.vtensor<[2,2],f32>, not tensor<4xf32>}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[2,2],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op must have 2 yielded values, not 1}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>, vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op result 0 is !torch.vtensor<[4],complex<f32>>: kernels take no torch.complex64}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],complex<f32>>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op its body may not hold tensor.splat}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %c = arith.constant 1.0 : f32
    %s = tensor.splat %c : tensor<4xf32>
    %t = builtin.unrealized_conversion_cast %s : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op its body makes a tensor<4xi24> (tensor.empty), a type that kernels do not take}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %s = tensor.empty() : tensor<4xi24>
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op a linalg.generic of its body may not hold index.constant}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %s = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%x : tensor<4xf32>) {
    ^bb0(%a: f32):
      %i = index.constant 4
      linalg.yield %a : f32
    } -> tensor<4xf32>
    %t = builtin.unrealized_conversion_cast %s : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[5],f32>>) {
  // expected-error@+1 {{'kern.kernel' op a linalg.generic of its body may not have affine_map<(d0) -> (d0 + 1)>: each dim must follow a loop of its own}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<5xf32>):
    %e = tensor.empty() : tensor<4xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0 + 1)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<5xf32>) outs(%e : tensor<4xf32>) {
    ^bb0(%a: f32, %b: f32):
      linalg.yield %a : f32
    } -> tensor<4xf32>
    %t = builtin.unrealized_conversion_cast %s : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[5],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[2,4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op a tensor.extract_slice of its body must keep all dims}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<2x4xf32>):
    %s = tensor.extract_slice %x[1, 0] [1, 4] [1, 1] : tensor<2x4xf32> to tensor<4xf32>
    %t = builtin.unrealized_conversion_cast %s : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[2,4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op a tensor.extract_slice of its body must have constant offsets and strides}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %i = arith.constant 1 : index
    %s = tensor.extract_slice %x[%i] [2] [1] : tensor<4xf32> to tensor<2xf32>
    %t = builtin.unrealized_conversion_cast %s : tensor<2xf32> to tuple<tensor<2xf32>>
    "kern.yield"(%t) : (tuple<tensor<2xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[2],f32>>
  return
}

// -----

func.func @f(%ins: !torch.vtensor<[4],f32>) {
  // expected-error@+1 {{'kern.kernel' op takes and gives tuples of values (torch.prim.TupleConstruct), not !torch.vtensor<[4],f32>}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.vtensor<[4],f32>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op in_place must be an array of i64, a result and an operand in turn}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {in_place = array<i64: 0>, kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op in_place: there is no result 0 or no operand 1}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {in_place = array<i64: 0, 1>, kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>, vtensor<[2],f32>>) {
  // expected-error@+1 {{'kern.kernel' op in_place: result 0 is !torch.vtensor<[4],f32>, operand 1 !torch.vtensor<[2],f32>}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>, %y: tensor<2xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {in_place = array<i64: 0, 1>, kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>, vtensor<[2],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op in_place: a result and an operand may each be there once}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %t = builtin.unrealized_conversion_cast %x, %x : tensor<4xf32>, tensor<4xf32> to tuple<tensor<4xf32>, tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>, tensor<4xf32>>) -> ()
  }) {in_place = array<i64: 0, 0, 1, 0>, kern.name = "k"} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>, vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[?],f32>, int>) {
  // expected-error@+1 {{'kern.kernel' op has sizes that its types do not give, so it must have kern.shapes and kern.hints}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<?xf32>, %n: index):
    %t = builtin.unrealized_conversion_cast %x : tensor<?xf32> to tuple<tensor<?xf32>>
    "kern.yield"(%t) : (tuple<tensor<?xf32>>) -> ()
  }) {kern.name = "k"} : (!torch.tuple<vtensor<[?],f32>, int>) -> !torch.tuple<vtensor<[?],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[?],f32>, int>) {
  // expected-error@+1 {{'kern.kernel' op kern.hints must be an array<i64> with a number for each of its 1 integers, not array<i64: 4, 5>}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<?xf32>, %n: index):
    %t = builtin.unrealized_conversion_cast %x : tensor<?xf32> to tuple<tensor<?xf32>>
    "kern.yield"(%t) : (tuple<tensor<?xf32>>) -> ()
  }) {kern.name = "k", kern.hints = array<i64: 4, 5>, kern.shapes = [affine_map<()[s0] -> (s0)>, affine_map<()[s0] -> (s0)>]}
    : (!torch.tuple<vtensor<[?],f32>, int>) -> !torch.tuple<vtensor<[?],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[?],f32>, int>) {
  // expected-error@+1 {{'kern.kernel' op affine_map<()[s0] -> (4)> in kern.shapes must be the shape of !torch.vtensor<[?],f32> in 1 symbols}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<?xf32>, %n: index):
    %t = builtin.unrealized_conversion_cast %x : tensor<?xf32> to tuple<tensor<?xf32>>
    "kern.yield"(%t) : (tuple<tensor<?xf32>>) -> ()
  }) {kern.name = "k", kern.hints = array<i64: 4>, kern.shapes = [affine_map<()[s0] -> (s0)>, affine_map<()[s0] -> (4)>]}
    : (!torch.tuple<vtensor<[?],f32>, int>) -> !torch.tuple<vtensor<[?],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[?],f32>, int>) {
  // expected-error@+1 {{'kern.kernel' op must have 1 body arguments of type index, after all others}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<?xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<?xf32> to tuple<tensor<?xf32>>
    "kern.yield"(%t) : (tuple<tensor<?xf32>>) -> ()
  }) {kern.name = "k", kern.hints = array<i64: 4>, kern.shapes = [affine_map<()[s0] -> (s0)>, affine_map<()[s0] -> (s0)>]}
    : (!torch.tuple<vtensor<[?],f32>, int>) -> !torch.tuple<vtensor<[?],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op kern.checks: result 0 is not a single si64}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k", kern.checks = [[0, "index {} is none"]]} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.kernel' op kern.checks must be pairs of a number and a string, not ["wrong"]}}
  %outs = "kern.kernel"(%ins) ({
  ^bb0(%x: tensor<4xf32>):
    %t = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tuple<tensor<4xf32>>
    "kern.yield"(%t) : (tuple<tensor<4xf32>>) -> ()
  }) {kern.name = "k", kern.checks = ["wrong"]} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}
