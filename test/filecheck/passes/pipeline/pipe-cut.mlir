// RUN: shardc-opt --pipe-cut %s | filecheck %s
// RUN: shardc-opt --pipe-cut=schedule=zb-h1 %s | filecheck %s --check-prefix=SPLIT
// RUN: shardc-opt --pipeline 'pipe-cut{schedule=pipedream stale-weights=true}' %s | filecheck %s --check-prefix=STALE
// RUN: not shardc-opt --pipe-cut=schedule=pipedream %s 2>&1 | filecheck %s --check-prefix=REFUSED
// RUN: shardc-opt --pipe-cut=recompute=full %s | filecheck %s --check-prefix=FULL

// Two matmuls, two micro-batches: a stage each under 1F1B. The loop is gone; backward follows its forward, sums go from
// action to action, each rank updates its own parameter, and the second sends the loss to the first.

"dist.mesh"() {sym_name = "mesh", axes = [["pipe", 2, "space"], ["micro", 2, "time"]]} : () -> ()
func.func @step(%w0: !torch.vtensor<[4,4],f32> {dist.name = "w0", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, %w1: !torch.vtensor<[4,4],f32> {dist.name = "w1", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, %x: !torch.vtensor<[4,4],f32> {dist.name = "x", dist.role = "input", dist.sharding = #dist.sharding<@mesh, [[], []], []>}) -> (!torch.vtensor<[],f32> {dist.name = "loss", dist.role = "loss", dist.sharding = #dist.sharding<@mesh, [], []>}, !torch.vtensor<[4,4],f32> {dist.name = "w0", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, !torch.vtensor<[4,4],f32> {dist.name = "w1", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}) {
  %none = torch.constant.none
  %int1 = torch.constant.int 1
  %nothing = torch.prim.ListConstruct : () -> !torch.list<int>
  %int4 = torch.constant.int 4
  %square = torch.prim.ListConstruct %int4, %int4 : (!torch.int, !torch.int) -> !torch.list<int>
  %zero = torch.constant.float 0.0
  %z = torch.aten.full %nothing, %zero, %none, %none, %none, %none : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[],f32>
  %zz = torch.aten.full %square, %zero, %none, %none, %none, %none : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4,4],f32>
  %inits = torch.prim.TupleConstruct %z, %zz, %zz : !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>
  %caps = torch.prim.TupleConstruct %w0, %w1, %x : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.tuple<vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>
  %sums = "dist.loop"(%inits, %caps) ({
  ^bb0(%loss: !torch.vtensor<[],f32>, %g0: !torch.vtensor<[4,4],f32>, %g1: !torch.vtensor<[4,4],f32>, %v0: !torch.vtensor<[4,4],f32>, %v1: !torch.vtensor<[4,4],f32>, %all: !torch.vtensor<[4,4],f32>):
    %i1 = torch.constant.int 1
    %no = torch.constant.none
    %part = "dist.slice"(%all) {axes = ["micro"], dim = 0 : i64, dist.phase = "forward"} : (!torch.vtensor<[4,4],f32>) -> !torch.vtensor<[2,4],f32>
    %h = torch.aten.mm %part, %v0 {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[2,4],f32>
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
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>, !torch.tuple<vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>) -> !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>
  %r:3 = torch.prim.TupleUnpack %sums : !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>> -> !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>
  %n0 = torch.aten.sub.Tensor %w0, %r#1, %int1 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
  %n1 = torch.aten.sub.Tensor %w1, %r#2, %int1 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
  return %r#0, %n0, %n1 : !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>
}

// CHECK: "pipe.schedule"() {axis = "pipe", orders = {{\[\[}}"0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]], routes = {{\[\[}}0, 1]], slices = 1 : i64, sym_name = "1f1b"}

// Forward reads its part of the batch and makes what the next stage reads.
// CHECK: ^bb0(%arg0: !torch.vtensor<[4,4],f32>, %arg1: !torch.vtensor<[4,4],f32>):
// CHECK-NEXT: %0 = "dist.slice"(%arg0) {axes = ["micro"]
// CHECK-NEXT: %1 = torch.aten.mm %0, %arg1
// CHECK-NEXT: %2 = torch.prim.TupleConstruct %1
// CHECK-NEXT: "pipe.yield"(%2)
// CHECK-NEXT: }) {index = 0 : i64, kind = "F", pipe.kept_bytes = 0 : i64, pipe.kept_bytes_before = 0 : i64, pipe.recompute = "none", sums = 0 : i64, sym_name = "stage_0_F"}
// Backward takes a gradient and adds to the sum of the weight's.
// CHECK: ^bb0(%arg0: !torch.vtensor<[2,4],f32>, %arg1: !torch.vtensor<[4,4],f32>, %arg2: !torch.vtensor<[4,4],f32>):
// CHECK: %2 = torch.aten.mm %1, %arg0 {dist.name = "grad:w0"
// CHECK: %3 = torch.aten.add.Tensor %arg2, %2
// CHECK: }) {index = 0 : i64, kind = "B", sums = 1 : i64, sym_name = "stage_0_B"}
// CHECK: }) {index = 1 : i64, kind = "F", pipe.kept_bytes = 64 : i64, pipe.kept_bytes_before = 64 : i64, pipe.recompute = "none", sums = 1 : i64, sym_name = "stage_1_F"}
// CHECK: }) {index = 1 : i64, kind = "B", sums = 1 : i64, sym_name = "stage_1_B"}

// CHECK: func.func @step_0(%arg0: !torch.vtensor<[4,4],f32> {dist.name = "w0"{{.*}}, %arg1: !torch.vtensor<[4,4],f32> {dist.name = "x"
// CHECK-NOT: dist.loop
// CHECK: "pipe.action"(%{{.*}}) {action = "0F0", stage = @stage_0_F}
// CHECK: "pipe.send"(%{{.*}}) {tag = "1F0", to = 1 : i64}
// CHECK: "pipe.action"(%{{.*}}) {action = "0F1", stage = @stage_0_F}
// CHECK: "pipe.send"(%{{.*}}) {tag = "1F1", to = 1 : i64}
// CHECK: %[[G:.*]] = "pipe.receive"() {source = 1 : i64, tag = "0B0"}
// CHECK: "pipe.action"(%{{.*}}) {action = "0B0", stage = @stage_0_B}
// CHECK: "pipe.receive"() {source = 1 : i64, tag = "0B1"}
// CHECK: "pipe.action"(%{{.*}}) {action = "0B1", stage = @stage_0_B}
// CHECK: %[[L:.*]] = "pipe.receive"() {source = 1 : i64, tag = "value {{.*}}"} : () -> !torch.tuple<vtensor<[],f32>>
// CHECK: %[[LOSS:.*]] = torch.prim.TupleUnpack %[[L]]
// CHECK: %[[W:.*]] = torch.aten.sub.Tensor %arg0
// CHECK: return %[[LOSS]], %[[W]]

// CHECK: func.func @step_1(%arg0: !torch.vtensor<[4,4],f32> {dist.name = "w1"
// CHECK: "pipe.receive"() {source = 0 : i64, tag = "1F0"}
// CHECK: "pipe.action"(%{{.*}}) {action = "1F0", stage = @stage_1_F}
// CHECK: "pipe.action"(%{{.*}}) {action = "1B0", stage = @stage_1_B}
// CHECK: "pipe.send"(%{{.*}}) {tag = "0B0", to = 0 : i64}

// The gradient of stage 1's input is I; that of its weight, which no stage before reads, is W.
// SPLIT: }) {index = 1 : i64, kind = "F", {{.*}}sums = 1 : i64, sym_name = "stage_1_F"}
// SPLIT-NOT: grad:w1
// SPLIT: }) {index = 1 : i64, kind = "I", sums = 0 : i64, sym_name = "stage_1_I"}
// SPLIT: torch.aten.mm %{{.*}} {dist.name = "grad:w1"
// SPLIT: }) {index = 1 : i64, kind = "W", sums = 1 : i64, sym_name = "stage_1_W"}

// Each stage runs its optimizer behind each micro-batch. Stage 0 has run micro-batch 1 forward by then, on the old weight,
// which backward reads as well.
// STALE: updates = {every = 1 : i64}
// STALE: torch.aten.sub.Tensor %arg0, %arg1
// STALE: }) {index = 0 : i64, kind = "O", sym_name = "stage_0_O"}
// STALE: func.func @step_0(%arg0: !torch.vtensor<[4,4],f32> {dist.name = "w0"
// STALE: {action = "0F0", stage = @stage_0_F, version = 0 : i64}
// STALE: torch.prim.TupleConstruct %arg1, %arg0
// STALE-NEXT: "pipe.action"(%{{.*}}) {action = "0F1", stage = @stage_0_F, version = 0 : i64}
// STALE: {action = "0O0", stage = @stage_0_O, version = 0 : i64}
// STALE: {action = "0B1", stage = @stage_0_B, version = 0 : i64}
// STALE: {action = "0O1", stage = @stage_0_O, version = 1 : i64}
// STALE: func.func @step_1
// STALE: {action = "1F1", stage = @stage_1_F, version = 1 : i64}

// REFUSED: ChangesMathematics: the schedule pipedream changes the mathematics
// With recomputation the second stage's backward makes y again, of which it asks the shape; it keeps its input.
// FULL: }) {index = 1 : i64, kind = "F", pipe.kept_bytes = 32 : i64, pipe.kept_bytes_before = 64 : i64, pipe.recompute = "full", sums = 1 : i64, sym_name = "stage_1_F"}
// FULL: torch.aten.mm {{.*}} {dist.phase = "recompute"}
// FULL: }) {index = 1 : i64, kind = "B", sums = 1 : i64, sym_name = "stage_1_B"}
