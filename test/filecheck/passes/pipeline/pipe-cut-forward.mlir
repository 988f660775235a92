// RUN: shardc-opt --pipe-cut %s | filecheck %s
// RUN: shardc-opt --pipe-cut=schedule=chimera %s | filecheck %s --check-prefix=BOTH

// A program without backward: the forwards of the schedule. The loss and the rows of all micro-batches are on both ranks;
// under Chimera each rank makes those of one micro-batch.

"dist.mesh"() {sym_name = "mesh", axes = [["pipe", 2, "space"], ["micro", 2, "time"]]} : () -> ()
func.func @step(%w0: !torch.vtensor<[4,4],f32> {dist.name = "w0", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, %w1: !torch.vtensor<[4,4],f32> {dist.name = "w1", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, %x: !torch.vtensor<[4,4],f32> {dist.name = "x", dist.role = "input", dist.sharding = #dist.sharding<@mesh, [[], []], []>}) -> (!torch.vtensor<[],f32> {dist.name = "loss", dist.role = "loss", dist.sharding = #dist.sharding<@mesh, [], []>}, !torch.vtensor<[4,4],f32> {dist.name = "y", dist.role = "output", dist.sharding = #dist.sharding<@mesh, [[], []], []>}) {
  %none = torch.constant.none
  %nothing = torch.prim.ListConstruct : () -> !torch.list<int>
  %zero = torch.constant.float 0.0
  %z = torch.aten.full %nothing, %zero, %none, %none, %none, %none : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[],f32>
  %inits = torch.prim.TupleConstruct %z : !torch.vtensor<[],f32> -> !torch.tuple<vtensor<[],f32>>
  %caps = torch.prim.TupleConstruct %w0, %w1, %x : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.tuple<vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>
  %sums, %rows = "dist.loop"(%inits, %caps) ({
  ^bb0(%loss: !torch.vtensor<[],f32>, %v0: !torch.vtensor<[4,4],f32>, %v1: !torch.vtensor<[4,4],f32>, %all: !torch.vtensor<[4,4],f32>):
    %i1 = torch.constant.int 1
    %no = torch.constant.none
    %part = "dist.slice"(%all) {axes = ["micro"], dim = 0 : i64, dist.phase = "forward"} : (!torch.vtensor<[4,4],f32>) -> !torch.vtensor<[2,4],f32>
    %h = torch.aten.mm %part, %v0 {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[2,4],f32>
    %y = torch.aten.mm %h, %v1 {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[2,4],f32>
    %l = torch.aten.sum %y, %no {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.none -> !torch.vtensor<[],f32>
    %loss2 = torch.aten.add.Tensor %loss, %l, %i1 {dist.phase = "forward"} : !torch.vtensor<[],f32>, !torch.vtensor<[],f32>, !torch.int -> !torch.vtensor<[],f32>
    %next = torch.prim.TupleConstruct %loss2 : !torch.vtensor<[],f32> -> !torch.tuple<vtensor<[],f32>>
    %row = torch.prim.TupleConstruct %y : !torch.vtensor<[2,4],f32> -> !torch.tuple<vtensor<[2,4],f32>>
    "dist.yield"(%next, %row) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[],f32>>, !torch.tuple<vtensor<[2,4],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[],f32>>, !torch.tuple<vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>>) -> (!torch.tuple<vtensor<[],f32>>, !torch.tuple<vtensor<[4,4],f32>>)
  %total = torch.prim.TupleUnpack %sums : !torch.tuple<vtensor<[],f32>> -> !torch.vtensor<[],f32>
  %whole = torch.prim.TupleUnpack %rows : !torch.tuple<vtensor<[4,4],f32>> -> !torch.vtensor<[4,4],f32>
  return %total, %whole : !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>
}

// CHECK: "pipe.schedule"() {axis = "pipe", orders = {{\[\[}}"0F0", "0F1"], ["1F0", "1F1"{{\]\]}}
// CHECK-SAME: sym_name = "1f1b-forward"
// CHECK-LABEL: func.func @step_0
// CHECK: action = "0F1"
// CHECK: "pipe.receive"() {source = 1 : i64, tag = "value
// CHECK: "pipe.receive"() {source = 1 : i64, tag = "value
// CHECK: return
// CHECK-LABEL: func.func @step_1
// CHECK: action = "1F1"
// CHECK: torch.aten.cat
// CHECK: "pipe.send"
// CHECK: return

// BOTH-LABEL: func.func @step_0
// BOTH: "pipe.receive"() {source = 1 : i64, tag = "rows"}
// BOTH: torch.aten.cat
// BOTH-LABEL: func.func @step_1
// BOTH: "pipe.receive"() {source = 0 : i64, tag = "rows"}
// BOTH: torch.aten.cat
