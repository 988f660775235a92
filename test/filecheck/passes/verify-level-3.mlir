// RUN: shardc-opt --split-input-file --verify-diagnostics --verify-level=level=3 %s | filecheck %s

// Level 3: one rank's program. No reshards or constraints are left; every argument and result says how it lies.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// CHECK-LABEL: func.func @step
func.func @step(%x: !torch.vtensor<[4],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> (!torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [[]], []>}) {
  %0 = "dist.all_gather"(%x) {axes = ["data"], dim = 0 : i64} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// expected-error@unknown {{argument 0 has no dist.sharding}}
func.func @argument_without(%x: !torch.vtensor<[8],f32>) {
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

func.func @left_over(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> (!torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [[]], []>}) {
  // expected-error@+1 {{dist.reshard is left over}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[]], []>} : (!torch.vtensor<[8],f32>) -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// expected-error@unknown {{result 0 has no dist.sharding}}
func.func @result_without(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> !torch.vtensor<[8],f32> {
  return %x : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// There is no term to combine.
func.func @no_term(%x: !torch.vtensor<[4],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) {
  // expected-error@+1 {{dist.all_reduce does not apply to [{data:(1)2}]: [{data:(1)2}] has no sum over [data:(1)2] to combine}}
  %0 = "dist.all_reduce"(%x) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// It gathers over another axis than cuts the dim.
func.func @other_axis(%x: !torch.vtensor<[4],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) {
  // expected-error@+1 {{[tensor:(1)2] are not the innermost of [data:(1)2]}}
  %0 = "dist.all_gather"(%x) {axes = ["tensor"], dim = 0 : i64} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[8],f32>
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// The result says another layout than the collective makes.
func.func @other_result(%x: !torch.vtensor<[4],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) {
  // expected-error@+1 {{dist.all_gather makes [{}] of [{data:(1)2}], but its result is [{data:(1)2}]}}
  %0 = "dist.all_gather"(%x) {axes = ["data"], dim = 0 : i64, dist.shardings = [#dist.sharding<@mesh, [["data"]], []>]} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[8],f32>
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A call on blocks is the whole call on the layouts beside it: a term is left over.
func.func @term_lost(%x: !torch.vtensor<[4],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) {
  %none = torch.constant.none
  // expected-error@+1 {{result 0 of aten.sum is [], but its rule ([a])->([]) reduce={a} makes [] partial sum(data:(1)2)}}
  %0 = torch.aten.sum %x, %none {dist.shardings = [#dist.sharding<@mesh, [], []>]} : !torch.vtensor<[4],f32>, !torch.none -> !torch.vtensor<[],f32>
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 2, "time"]]} : () -> ()

// Slices over a time axis are for loops over it.
func.func @no_loop(%x: !torch.vtensor<[4],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) {
  // expected-error@+1 {{dist.slice is over a time axis, and in no loop over it}}
  %0 = "dist.slice"(%x) {axes = ["micro"], dim = 0 : i64} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[2],f32>
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// expected-error@unknown {{on a rank, which is not a block of [8] under [{data:(1)2}]}}
func.func @no_block(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>, dist.global_type = !torch.vtensor<[8],f32>}) {
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 2, "time"]]} : () -> ()

// A sum starts from 0.
func.func @starts_from_one(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [[]], []>}) {
  %list = torch.prim.ListConstruct : () -> !torch.list<int>
  %int1 = torch.constant.int 1
  %start = torch.constant.float 1.0
  %none = torch.constant.none
  %zero = torch.aten.full %list, %start, %none, %none, %none, %none : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[],f32>
  %inits = torch.prim.TupleConstruct %zero : !torch.vtensor<[],f32> -> !torch.tuple<vtensor<[],f32>>
  %captures = torch.prim.TupleConstruct %x : !torch.vtensor<[8],f32> -> !torch.tuple<vtensor<[8],f32>>
  // expected-error@+1 {{a sum over the iterations of micro starts from 1.0}}
  %sums = "dist.loop"(%inits, %captures) ({
  ^bb0(%acc: !torch.vtensor<[],f32>, %all: !torch.vtensor<[8],f32>):
    %one = torch.constant.int 1
    %no = torch.constant.none
    %part = "dist.slice"(%all) {axes = ["micro"], dim = 0 : i64} : (!torch.vtensor<[8],f32>) -> !torch.vtensor<[4],f32>
    %term = torch.aten.sum %part, %no {dist.shardings = [#dist.sharding<@mesh, [], [["sum", "micro"]]>]} : !torch.vtensor<[4],f32>, !torch.none -> !torch.vtensor<[],f32>
    %next = torch.aten.add.Tensor %acc, %term, %one : !torch.vtensor<[],f32>, !torch.vtensor<[],f32>, !torch.int -> !torch.vtensor<[],f32>
    %tuple = torch.prim.TupleConstruct %next : !torch.vtensor<[],f32> -> !torch.tuple<vtensor<[],f32>>
    "dist.yield"(%tuple) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[],f32>>, !torch.tuple<vtensor<[8],f32>>) -> !torch.tuple<vtensor<[],f32>>
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 2, "time"]]} : () -> ()

// Terms of a sum are added.
func.func @other_combination(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [[]], []>}) {
  %list = torch.prim.ListConstruct : () -> !torch.list<int>
  %int1 = torch.constant.int 1
  %start = torch.constant.float 0xFFF0000000000000
  %none = torch.constant.none
  %zero = torch.aten.full %list, %start, %none, %none, %none, %none : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[],f32>
  %inits = torch.prim.TupleConstruct %zero : !torch.vtensor<[],f32> -> !torch.tuple<vtensor<[],f32>>
  %captures = torch.prim.TupleConstruct %x : !torch.vtensor<[8],f32> -> !torch.tuple<vtensor<[8],f32>>
  // expected-error@+1 {{a max over the iterations of micro takes a value that is [] partial sum(micro:(1)2)}}
  %sums = "dist.loop"(%inits, %captures) ({
  ^bb0(%acc: !torch.vtensor<[],f32>, %all: !torch.vtensor<[8],f32>):
    %one = torch.constant.int 1
    %no = torch.constant.none
    %part = "dist.slice"(%all) {axes = ["micro"], dim = 0 : i64} : (!torch.vtensor<[8],f32>) -> !torch.vtensor<[4],f32>
    %term = torch.aten.sum %part, %no {dist.shardings = [#dist.sharding<@mesh, [], [["sum", "micro"]]>]} : !torch.vtensor<[4],f32>, !torch.none -> !torch.vtensor<[],f32>
    %next = torch.aten.maximum %acc, %term : !torch.vtensor<[],f32>, !torch.vtensor<[],f32> -> !torch.vtensor<[],f32>
    %tuple = torch.prim.TupleConstruct %next : !torch.vtensor<[],f32> -> !torch.tuple<vtensor<[],f32>>
    "dist.yield"(%tuple) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[],f32>>, !torch.tuple<vtensor<[8],f32>>) -> !torch.tuple<vtensor<[],f32>>
  return
}
