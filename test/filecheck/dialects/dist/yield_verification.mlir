// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f() {
  // expected-error@+1 {{'dist.yield' op must end the body of a dist.loop or a dist.manual}}
  "dist.yield"() {operandSegmentSizes = array<i32: 0, 0>} : () -> ()
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  %0 = "dist.loop"(%t) ({
  ^bb0(%a: !torch.vtensor<[4,8],f32>):
    // expected-error@+1 {{'dist.yield' op takes tuples of values (torch.prim.TupleConstruct), not !torch.vtensor<[4,8],f32>}}
    "dist.yield"(%a) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.vtensor<[4,8],f32>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 0>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // expected-error@+1 {{'dist.loop' op has a body of 0 blocks; it must have one}}
  %0 = "dist.loop"(%t) ({
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 0>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}
