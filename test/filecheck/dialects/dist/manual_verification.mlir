// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.manual' op works over devices, but 'micro' is a time axis: use a dist.loop}}
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["micro"], in_shardings = [#dist.sharding<@mesh, [["data"], []], []>], out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.manual' op unknown axis 'dat'}}
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["dat"], in_shardings = [#dist.sharding<@mesh, [["data"], []], []>], out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.manual' op must have 1 in_shardings, one for each value, not 0}}
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [], out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.manual' op must have 1 out_shardings, one for each value, not 2}}
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data"], []], []>], out_shardings = [#dist.sharding<@mesh, [[], []], []>, #dist.sharding<@mesh, [[], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.manual' op in_shardings[0]: axis 'data' appears twice: in dim 0 and in dim 1}}
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data"], ["data"]], []>], out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.manual' op in_shardings[0] must be a #dist.sharding, not "data"}}
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = ["data"], out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.manual' op in_shardings[0]: open dims}}
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data"], ["?"]], []>], out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.manual' op in_shardings[0]: in dim 0 the manual axes must come before the others}}
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["tensor", "data"], []], []>], out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.manual' op in_shardings[0]: axis tensor:(1)4 is only partly manual: split it at tensor:(1)2}}
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = [#dist.axis<"tensor", 1, 2>], in_shardings = [#dist.sharding<@mesh, [["tensor"], []], []>], out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.manual' op dim 0 of size 4 does not divide into 8 equal blocks}}
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["data", "tensor"], in_shardings = [#dist.sharding<@mesh, [["data", "tensor"], []], []>], out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.manual' op body argument 0 must be !torch.vtensor<[2,8],f32>, not !torch.vtensor<[4,8],f32>}}
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data"], []], []>], out_shardings = [#dist.sharding<@mesh, [[], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.manual' op yielded value 0 must be !torch.vtensor<[4,8],f32>, not !torch.vtensor<[2,8],f32>}}
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data"], []], []>], out_shardings = [#dist.sharding<@mesh, [[], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.manual' op runs its body once: it has no values to stack}}
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 0, 1>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data"], []], []>], out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.manual' op takes and gives tuples of values (torch.prim.TupleConstruct), not !torch.vtensor<[4,8],f32>}}
  %0 = "dist.manual"(%x) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    "dist.yield"() {operandSegmentSizes = array<i32: 0, 0>} : () -> ()
  }) {axes = ["data"], in_shardings = [], out_shardings = []} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @counted(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %seed = torch.vtensor.literal(dense<1> : tensor<si64>) : !torch.vtensor<[],si64>
    %i0 = torch.constant.int 0
    %i2 = torch.constant.int 2
    %i8 = torch.constant.int 8
    %dtype = torch.constant.int 6
    %size = torch.prim.ListConstruct %i2, %i8 : (!torch.int, !torch.int) -> !torch.list<int>
    %from = torch.prim.ListConstruct %i0, %i0 : (!torch.int, !torch.int) -> !torch.list<int>
    // expected-error@+1 {{'dist.manual' op draws random numbers in its body (shardc.uniform); draw them before it and pass them in}}
    %r = torch.operator "torch.shardc.uniform"(%seed, %i0, %size, %from, %size, %dtype) : (!torch.vtensor<[],si64>, !torch.int, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.int) -> !torch.vtensor<[2,8],f32>
    %u = torch.prim.TupleConstruct %r : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data"], []], []>], out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @of_torch(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %none = torch.constant.none
    // expected-error@+1 {{'dist.manual' op draws random numbers in its body (aten.bernoulli); draw them before it and pass them in}}
    %r = torch.aten.bernoulli %a, %none : !torch.vtensor<[2,8],f32>, !torch.none -> !torch.vtensor<[2,8],f32>
    %u = torch.prim.TupleConstruct %r : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data"], []], []>], out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @attention_with_dropout(%x: !torch.vtensor<[4,1,4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,1,4,8],f32> -> !torch.tuple<vtensor<[4,1,4,8],f32>>
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,1,4,8],f32>):
    %p = torch.constant.float 5.000000e-01
    %false = torch.constant.bool false
    %none = torch.constant.none
    // expected-error@+1 {{draws random numbers in its body (aten._scaled_dot_product_flash_attention_for_cpu)}}
    %r:2 = torch.operator "torch.aten._scaled_dot_product_flash_attention_for_cpu"(%a, %a, %a, %p, %false, %none, %none) : (!torch.vtensor<[2,1,4,8],f32>, !torch.vtensor<[2,1,4,8],f32>, !torch.vtensor<[2,1,4,8],f32>, !torch.float, !torch.bool, !torch.none, !torch.none) -> (!torch.vtensor<[2,1,4,8],f32>, !torch.vtensor<[2,4,1],f32>)
    %u = torch.prim.TupleConstruct %r#0 : !torch.vtensor<[2,1,4,8],f32> -> !torch.tuple<vtensor<[2,1,4,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,1,4,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data"], [], [], []], []>], out_shardings = [#dist.sharding<@mesh, [["data"], [], [], []], []>]} : (!torch.tuple<vtensor<[4,1,4,8],f32>>) -> !torch.tuple<vtensor<[4,1,4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @attention_without_dropout(%x: !torch.vtensor<[4,1,4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,1,4,8],f32> -> !torch.tuple<vtensor<[4,1,4,8],f32>>
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,1,4,8],f32>):
    %p = torch.constant.float 0.000000e+00
    %false = torch.constant.bool false
    %none = torch.constant.none
    %r:2 = torch.operator "torch.aten._scaled_dot_product_flash_attention_for_cpu"(%a, %a, %a, %p, %false, %none, %none) : (!torch.vtensor<[2,1,4,8],f32>, !torch.vtensor<[2,1,4,8],f32>, !torch.vtensor<[2,1,4,8],f32>, !torch.float, !torch.bool, !torch.none, !torch.none) -> (!torch.vtensor<[2,1,4,8],f32>, !torch.vtensor<[2,4,1],f32>)
    %u = torch.prim.TupleConstruct %r#0 : !torch.vtensor<[2,1,4,8],f32> -> !torch.tuple<vtensor<[2,1,4,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,1,4,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data"], [], [], []], []>], out_shardings = [#dist.sharding<@mesh, [["data"], [], [], []], []>]} : (!torch.tuple<vtensor<[4,1,4,8],f32>>) -> !torch.tuple<vtensor<[4,1,4,8],f32>>
  return
}
