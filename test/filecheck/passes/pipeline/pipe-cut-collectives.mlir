// RUN: shardc-opt --pipe-cut %s | filecheck %s
// RUN: shardc-opt --pipe-cut=gather=step %s | filecheck %s --check-prefix=ONCE
// RUN: not shardc-opt --pipe-cut=gather=batch %s 2>&1 | filecheck %s --check-prefix=REFUSED

// Two stages on a mesh with data parallelism: each reduces its gradients behind its own last backward. The first weight
// is cut over the data axis: it is gathered for each micro-batch, or once for the step.

"dist.mesh"() {sym_name = "mesh", axes = [["pipe", 2, "space"], ["data", 2, "space"], ["micro", 2, "time"]]} : () -> ()
func.func @step(%w0: !torch.vtensor<[2,4],f32> {dist.name = "w0", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}, %w1: !torch.vtensor<[4,4],f32> {dist.name = "w1", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, %x: !torch.vtensor<[4,4],f32> {dist.name = "x", dist.role = "input", dist.sharding = #dist.sharding<@mesh, [[], []], []>}) -> (!torch.vtensor<[],f32> {dist.name = "loss", dist.role = "loss", dist.sharding = #dist.sharding<@mesh, [], []>}, !torch.vtensor<[2,4],f32> {dist.name = "w0", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}, !torch.vtensor<[4,4],f32> {dist.name = "w1", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}) {
  %none = torch.constant.none
  %int1 = torch.constant.int 1
  %nothing = torch.prim.ListConstruct : () -> !torch.list<int>
  %int4 = torch.constant.int 4
  %square = torch.prim.ListConstruct %int4, %int4 : (!torch.int, !torch.int) -> !torch.list<int>
  %zero = torch.constant.float 0.0
  %z = torch.aten.full %nothing, %zero, %none, %none, %none, %none : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[],f32>
  %zz = torch.aten.full %square, %zero, %none, %none, %none, %none : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4,4],f32>
  %inits = torch.prim.TupleConstruct %z, %zz, %zz : !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>
  %caps = torch.prim.TupleConstruct %w0, %w1, %x : !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.tuple<vtensor<[2,4],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>
  %sums = "dist.loop"(%inits, %caps) ({
  ^bb0(%loss: !torch.vtensor<[],f32>, %g0: !torch.vtensor<[4,4],f32>, %g1: !torch.vtensor<[4,4],f32>, %v0: !torch.vtensor<[2,4],f32>, %v1: !torch.vtensor<[4,4],f32>, %all: !torch.vtensor<[4,4],f32>):
    %i1 = torch.constant.int 1
    %no = torch.constant.none
    %part = "dist.slice"(%all) {axes = ["micro"], dim = 0 : i64, dist.phase = "forward"} : (!torch.vtensor<[4,4],f32>) -> !torch.vtensor<[2,4],f32>
    %whole = "dist.all_gather"(%v0) {axes = ["data"], dim = 0 : i64, dist.phase = "forward"} : (!torch.vtensor<[2,4],f32>) -> !torch.vtensor<[4,4],f32>
    %h = torch.aten.mm %part, %whole {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[2,4],f32>
    %y = torch.aten.mm %h, %v1 {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[2,4],f32>
    %l = torch.aten.sum %y, %no {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.none -> !torch.vtensor<[],f32>
    %gy = torch.aten.ones_like %y, %no, %no, %no, %no, %no {dist.phase = "backward"} : !torch.vtensor<[2,4],f32>, !torch.none, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[2,4],f32>
    %ht = torch.aten.t %h {dist.phase = "backward"} : !torch.vtensor<[2,4],f32> -> !torch.vtensor<[4,2],f32>
    %gw1 = torch.aten.mm %ht, %gy {dist.phase = "backward", dist.name = "grad:w1"} : !torch.vtensor<[4,2],f32>, !torch.vtensor<[2,4],f32> -> !torch.vtensor<[4,4],f32>
    %v1t = torch.aten.t %v1 {dist.phase = "backward"} : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %gh = torch.aten.mm %gy, %v1t {dist.phase = "backward"} : !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[2,4],f32>
    %xt = torch.aten.t %part {dist.phase = "backward"} : !torch.vtensor<[2,4],f32> -> !torch.vtensor<[4,2],f32>
    %gw0 = torch.aten.mm %xt, %gh {dist.phase = "backward", dist.name = "grad:w0"} : !torch.vtensor<[4,2],f32>, !torch.vtensor<[2,4],f32> -> !torch.vtensor<[4,4],f32>
    %loss2 = torch.aten.add.Tensor %loss, %l, %i1 {dist.phase = "forward"} : !torch.vtensor<[],f32>, !torch.vtensor<[],f32>, !torch.int -> !torch.vtensor<[],f32>
    %g02 = torch.aten.add.Tensor %g0, %gw0, %i1 {dist.phase = "backward"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
    %g12 = torch.aten.add.Tensor %g1, %gw1, %i1 {dist.phase = "backward"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
    %next = torch.prim.TupleConstruct %loss2, %g02, %g12 : !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>
    "dist.yield"(%next) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>, !torch.tuple<vtensor<[2,4],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>) -> !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>
  %r:3 = torch.prim.TupleUnpack %sums : !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>> -> !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>
  %s0 = "dist.reduce_scatter"(%r#1) {axes = ["data"], dim = 0 : i64, reduction = "sum"} : (!torch.vtensor<[4,4],f32>) -> !torch.vtensor<[2,4],f32>
  %s1 = "dist.all_reduce"(%r#2) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[4,4],f32>) -> !torch.vtensor<[4,4],f32>
  %n0 = torch.aten.sub.Tensor %w0, %s0, %int1 : !torch.vtensor<[2,4],f32>, !torch.vtensor<[2,4],f32>, !torch.int -> !torch.vtensor<[2,4],f32>
  %n1 = torch.aten.sub.Tensor %w1, %s1, %int1 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
  return %r#0, %n0, %n1 : !torch.vtensor<[],f32>, !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,4],f32>
}

// CHECK: }) {index = 0 : i64, kind = "F"
// CHECK: ^bb0(%arg0: !torch.vtensor<[4,4],f32>):
// CHECK-NEXT: %0 = "dist.reduce_scatter"(%arg0) {axes = ["data"], dim = 0 : i64, reduction = "sum"}
// CHECK: }) {index = 0 : i64, kind = "REDUCE_GRAD", sym_name = "stage_0_REDUCE_GRAD"} : () -> ()
// CHECK: %0 = "dist.all_reduce"(%arg0) {axes = ["data"], reduction = "sum"}
// CHECK: }) {index = 1 : i64, kind = "REDUCE_GRAD", sym_name = "stage_1_REDUCE_GRAD"} : () -> ()
// CHECK-LABEL: func.func @step_0
// CHECK-NOT: action = "0UNSHARD"
// CHECK: action = "0B1"
// CHECK: action = "0REDUCE_GRAD"
// CHECK: torch.aten.sub.Tensor
// CHECK-LABEL: func.func @step_1
// CHECK: action = "1B1"
// CHECK: action = "1REDUCE_GRAD"

// ONCE: ^bb0(%arg0: !torch.vtensor<[4,4],f32>, %arg1: !torch.vtensor<[4,4],f32>):
// ONCE-NEXT: %0 = "dist.slice"(%arg0)
// ONCE-NEXT: %1 = torch.aten.mm %0, %arg1
// ONCE: ^bb0(%arg0: !torch.vtensor<[2,4],f32>):
// ONCE-NEXT: %0 = "dist.all_gather"(%arg0) {axes = ["data"], dim = 0 : i64
// ONCE: }) {index = 0 : i64, kind = "UNSHARD", sym_name = "stage_0_UNSHARD"} : () -> ()
// ONCE-LABEL: func.func @step_0
// ONCE: "pipe.action"(%{{.*}}) {action = "0UNSHARD", stage = @stage_0_UNSHARD}
// ONCE: action = "0F0"
// ONCE-NOT: UNSHARD
// ONCE-LABEL: func.func @step_1

// REFUSED: BadArgument: gather is 'batch', not 'micro-batch' or 'step'; did you mean 'micro-batch'?
