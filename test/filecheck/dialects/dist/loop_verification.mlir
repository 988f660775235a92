// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.loop' op must be over a time axis; 'tensor' is a space axis}}
  %0:2 = "dist.loop"(%t, %t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>, %b: !torch.vtensor<[4,8],f32>):
    %next = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    %row = "dist.slice"(%b) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
    %rows = torch.prim.TupleConstruct %row : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
    "dist.yield"(%next, %rows) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[1,8],f32>>) -> ()
  }) {axis = "tensor", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.loop' op unknown axis 'micr'; the mesh has 'data', 'tensor', 'micro'; did you mean 'micro'?}}
  %0:2 = "dist.loop"(%t, %t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>, %b: !torch.vtensor<[4,8],f32>):
    %next = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    %row = "dist.slice"(%b) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
    %rows = torch.prim.TupleConstruct %row : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
    "dist.yield"(%next, %rows) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[1,8],f32>>) -> ()
  }) {axis = "micr", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.loop' op sub-axis micro:(2)4 does not fit}}
  %0:2 = "dist.loop"(%t, %t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>, %b: !torch.vtensor<[4,8],f32>):
    %next = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    %row = "dist.slice"(%b) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
    %rows = torch.prim.TupleConstruct %row : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
    "dist.yield"(%next, %rows) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[1,8],f32>>) -> ()
  }) {axis = #dist.axis<"micro", 2, 4>, operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.loop' op an axis is "name" or #dist.axis<"name", pre, size>, not 4}}
  %0:2 = "dist.loop"(%t, %t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>, %b: !torch.vtensor<[4,8],f32>):
    %next = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    %row = "dist.slice"(%b) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
    %rows = torch.prim.TupleConstruct %row : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
    "dist.yield"(%next, %rows) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[1,8],f32>>) -> ()
  }) {axis = 4, operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.loop' op must have 2 body arguments, not 1}}
  %0:2 = "dist.loop"(%t, %t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>):
    %next = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    %rows = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    "dist.yield"(%next, %rows) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.loop' op body argument 1 must be !torch.vtensor<[4,8],f32>, not !torch.vtensor<[1,8],f32>}}
  %0:2 = "dist.loop"(%t, %t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>, %b: !torch.vtensor<[1,8],f32>):
    %next = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    %rows = torch.prim.TupleConstruct %b : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
    "dist.yield"(%next, %rows) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[1,8],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.loop' op carried value 0 must be !torch.vtensor<[4,8],f32>, not !torch.vtensor<[1,8],f32>}}
  %0:2 = "dist.loop"(%t, %t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>, %b: !torch.vtensor<[4,8],f32>):
    %next = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    %row = "dist.slice"(%b) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
    %rows = torch.prim.TupleConstruct %row : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
    "dist.yield"(%rows, %rows) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[1,8],f32>>, !torch.tuple<vtensor<[1,8],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.loop' op stacks 1 values, but stack_dims has 2}}
  %0:2 = "dist.loop"(%t, %t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>, %b: !torch.vtensor<[4,8],f32>):
    %next = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    %row = "dist.slice"(%b) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
    %rows = torch.prim.TupleConstruct %row : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
    "dist.yield"(%next, %rows) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[1,8],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0, 0]} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.loop' op stack_dims[0] is 2, which !torch.vtensor<[1,8],f32> does not have}}
  %0:2 = "dist.loop"(%t, %t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>, %b: !torch.vtensor<[4,8],f32>):
    %next = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    %row = "dist.slice"(%b) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
    %rows = torch.prim.TupleConstruct %row : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
    "dist.yield"(%next, %rows) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[1,8],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [2]} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.loop' op stacked result 0 must be !torch.vtensor<[1,32],f32>, not !torch.vtensor<[4,8],f32>}}
  %0:2 = "dist.loop"(%t, %t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>, %b: !torch.vtensor<[4,8],f32>):
    %next = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    %row = "dist.slice"(%b) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
    %rows = torch.prim.TupleConstruct %row : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
    "dist.yield"(%next, %rows) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[1,8],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [1]} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.loop' op last carried value 0 must be !torch.vtensor<[4,8],f32>, not !torch.vtensor<[1,8],f32>}}
  %0:2 = "dist.loop"(%t, %t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>, %b: !torch.vtensor<[4,8],f32>):
    %next = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    %row = "dist.slice"(%b) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
    %rows = torch.prim.TupleConstruct %row : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
    "dist.yield"(%next, %rows) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[1,8],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[1,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'operandSegmentSizes' attribute is expected but not provided}}
  %0:2 = "dist.loop"(%t, %t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>, %b: !torch.vtensor<[4,8],f32>):
    %next = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    %row = "dist.slice"(%b) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
    %rows = torch.prim.TupleConstruct %row : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
    "dist.yield"(%next, %rows) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[1,8],f32>>) -> ()
  }) {axis = "micro", resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[4,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  %0 = "dist.loop"(%t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    // expected-error@+1 {{'dist.loop' op is over axis 'micro', and so is a loop around it}}
    %1 = "dist.loop"(%u) ({
    ^bb0(%b: !torch.vtensor<[4,8],f32>):
      %v = torch.prim.TupleConstruct %b : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
      "dist.yield"(%v) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
    }) {axis = "micro", operandSegmentSizes = array<i32: 1, 0>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
    "dist.yield"(%1) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 0>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-note@+1 {{required by region isolation constraints}}
  %0 = "dist.loop"(%t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>):
    // expected-error@+1 {{'torch.prim.TupleConstruct' op using value defined outside the region}}
    %u = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 0>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}
