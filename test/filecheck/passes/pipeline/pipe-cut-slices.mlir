// RUN: shardc-opt --pipe-cut=schedule=terapipe %s | filecheck %s

// Two matmuls of each token, two sequences of four tokens in four slices: a body for each slice, which takes its tokens
// out of the sequence and adds to the sums what they have.

"dist.mesh"() {sym_name = "mesh", axes = [["pipe", 2, "space"], ["micro", 2, "time"]]} : () -> ()
func.func @step(%w0: !torch.vtensor<[4,4],f32> {dist.name = "w0", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, %w1: !torch.vtensor<[4,4],f32> {dist.name = "w1", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, %x: !torch.vtensor<[2,4,4],f32> {dist.name = "x", dist.role = "input", dist.sharding = #dist.sharding<@mesh, [[], [], []], []>}) -> (!torch.vtensor<[],f32> {dist.name = "loss", dist.role = "loss", dist.sharding = #dist.sharding<@mesh, [], []>}, !torch.vtensor<[4,4],f32> {dist.name = "w0", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, !torch.vtensor<[4,4],f32> {dist.name = "w1", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}) {
  %none = torch.constant.none
  %int1 = torch.constant.int 1
  %nothing = torch.prim.ListConstruct : () -> !torch.list<int>
  %int4 = torch.constant.int 4
  %square = torch.prim.ListConstruct %int4, %int4 : (!torch.int, !torch.int) -> !torch.list<int>
  %zero = torch.constant.float 0.0
  %z = torch.aten.full %nothing, %zero, %none, %none, %none, %none : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[],f32>
  %zz = torch.aten.full %square, %zero, %none, %none, %none, %none : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4,4],f32>
  %inits = torch.prim.TupleConstruct %z, %zz, %zz : !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>
  %caps = torch.prim.TupleConstruct %w0, %w1, %x : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[2,4,4],f32> -> !torch.tuple<vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[2,4,4],f32>>
  %sums = "dist.loop"(%inits, %caps) ({
  ^bb0(%loss: !torch.vtensor<[],f32>, %g0: !torch.vtensor<[4,4],f32>, %g1: !torch.vtensor<[4,4],f32>, %v0: !torch.vtensor<[4,4],f32>, %v1: !torch.vtensor<[4,4],f32>, %all: !torch.vtensor<[2,4,4],f32>):
    %i1 = torch.constant.int 1
    %no = torch.constant.none
    %own = "dist.slice"(%all) {axes = ["micro"], dim = 0 : i64, dist.phase = "forward"} : (!torch.vtensor<[2,4,4],f32>) -> !torch.vtensor<[1,4,4],f32>
    %i4 = torch.constant.int 4
    %rows = torch.prim.ListConstruct %i4, %i4 : (!torch.int, !torch.int) -> !torch.list<int>
    %part = torch.aten.view %own, %rows {dist.phase = "forward"} : !torch.vtensor<[1,4,4],f32>, !torch.list<int> -> !torch.vtensor<[4,4],f32>
    %h = torch.aten.mm %part, %v0 {dist.phase = "forward"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %y = torch.aten.mm %h, %v1 {dist.phase = "forward"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %l = torch.aten.sum %y, %no {dist.phase = "forward"} : !torch.vtensor<[4,4],f32>, !torch.none -> !torch.vtensor<[],f32>
    %gy = torch.aten.ones_like %y, %no, %no, %no, %no, %no {dist.phase = "backward"} : !torch.vtensor<[4,4],f32>, !torch.none, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4,4],f32>
    %ht = torch.aten.t %h {dist.phase = "backward"} : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %gw1 = torch.aten.mm %ht, %gy {dist.phase = "backward", dist.name = "grad:w1"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %v1t = torch.aten.t %v1 {dist.phase = "backward"} : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %gh = torch.aten.mm %gy, %v1t {dist.phase = "backward"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %xt = torch.aten.t %part {dist.phase = "backward"} : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %gw0 = torch.aten.mm %xt, %gh {dist.phase = "backward", dist.name = "grad:w0"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %loss2 = torch.aten.add.Tensor %loss, %l, %i1 {dist.phase = "forward"} : !torch.vtensor<[],f32>, !torch.vtensor<[],f32>, !torch.int -> !torch.vtensor<[],f32>
    %g02 = torch.aten.add.Tensor %g0, %gw0, %i1 {dist.phase = "backward"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
    %g12 = torch.aten.add.Tensor %g1, %gw1, %i1 {dist.phase = "backward"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
    %next = torch.prim.TupleConstruct %loss2, %g02, %g12 : !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>
    "dist.yield"(%next) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>, !torch.tuple<vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[2,4,4],f32>>) -> !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>
  %r:3 = torch.prim.TupleUnpack %sums : !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>> -> !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>
  %n0 = torch.aten.sub.Tensor %w0, %r#1, %int1 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
  %n1 = torch.aten.sub.Tensor %w1, %r#2, %int1 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
  return %r#0, %n0, %n1 : !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>
}

// CHECK: "pipe.schedule"() {axis = "pipe", lengths = [1, 1, 1, 1], orders = {{\[\[}}"0F0", "0F1", "0F2", "0F3", "0F4", {{.*}} slices = 4 : i64

// Slice 2 of forward.
// CHECK: }) {index = 0 : i64, kind = "F", slice = 1 : i64, sums = 0 : i64, sym_name = "stage_0_F_1"}
// CHECK: "dist.slice"(%arg0) {axes = ["micro"]
// CHECK: torch.aten.slice.Tensor %{{.*}}, %int0{{.*}}, %int2{{.*}}, %int3{{.*}}, %int1{{.*}} -> !torch.vtensor<[1,4],f32>
// CHECK-NEXT: torch.aten.mm %{{.*}} : !torch.vtensor<[1,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[1,4],f32>
// CHECK: }) {index = 0 : i64, kind = "F", slice = 2 : i64, sums = 0 : i64, sym_name = "stage_0_F_2"}

// The gradient of a weight is the sum over the tokens of all slices.
// CHECK: torch.aten.mm %{{.*}} {dist.name = "grad:w0", {{.*}}} : !torch.vtensor<[4,1],f32>, !torch.vtensor<[1,4],f32> -> !torch.vtensor<[4,4],f32>
// CHECK: }) {index = 0 : i64, kind = "B", slice = 3 : i64, sums = 1 : i64, sym_name = "stage_0_B_3"}

// CHECK: func.func @step_0
// CHECK: "pipe.action"(%{{.*}}) {action = "0F6", stage = @stage_0_F_2} : {{.*}}, vtensor<[1,4],f32>>
