// RUN: shardc-opt --pipe-cut %s | filecheck %s

// p is added first behind the cut, so its gradient is what crosses the cut in backward. The op that makes it reads another
// gradient alone and could move to stage 0, but a term of a sum stays on the stage that updates p.

"dist.mesh"() {sym_name = "mesh", axes = [["pipe", 2, "space"], ["micro", 2, "time"]]} : () -> ()
func.func @step(%w0: !torch.vtensor<[4,4],f32> {dist.name = "w0", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, %w1: !torch.vtensor<[4,4],f32> {dist.name = "w1", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, %p: !torch.vtensor<[2,4],f32> {dist.name = "p", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, %x: !torch.vtensor<[4,4],f32> {dist.name = "x", dist.role = "input", dist.sharding = #dist.sharding<@mesh, [[], []], []>}) -> (!torch.vtensor<[],f32> {dist.name = "loss", dist.role = "loss", dist.sharding = #dist.sharding<@mesh, [], []>}, !torch.vtensor<[4,4],f32> {dist.name = "w0", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, !torch.vtensor<[4,4],f32> {dist.name = "w1", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}, !torch.vtensor<[2,4],f32> {dist.name = "p", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], []], []>}) {
  %none = torch.constant.none
  %int1 = torch.constant.int 1
  %nothing = torch.prim.ListConstruct : () -> !torch.list<int>
  %int4 = torch.constant.int 4
  %square = torch.prim.ListConstruct %int4, %int4 : (!torch.int, !torch.int) -> !torch.list<int>
  %int2 = torch.constant.int 2
  %block = torch.prim.ListConstruct %int2, %int4 : (!torch.int, !torch.int) -> !torch.list<int>
  %zero = torch.constant.float 0.0
  %z = torch.aten.full %nothing, %zero, %none, %none, %none, %none : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[],f32>
  %zz = torch.aten.full %square, %zero, %none, %none, %none, %none : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4,4],f32>
  %zp = torch.aten.full %block, %zero, %none, %none, %none, %none : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[2,4],f32>
  %inits = torch.prim.TupleConstruct %z, %zz, %zz, %zp : !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[2,4],f32> -> !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[2,4],f32>>
  %caps = torch.prim.TupleConstruct %w0, %w1, %p, %x : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.tuple<vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[2,4],f32>, vtensor<[4,4],f32>>
  %sums = "dist.loop"(%inits, %caps) ({
  ^bb0(%loss: !torch.vtensor<[],f32>, %g0: !torch.vtensor<[4,4],f32>, %g1: !torch.vtensor<[4,4],f32>, %gp: !torch.vtensor<[2,4],f32>, %v0: !torch.vtensor<[4,4],f32>, %v1: !torch.vtensor<[4,4],f32>, %vp: !torch.vtensor<[2,4],f32>, %all: !torch.vtensor<[4,4],f32>):
    %i1 = torch.constant.int 1
    %i2 = torch.constant.int 2
    %no = torch.constant.none
    %part = "dist.slice"(%all) {axes = ["micro"], dim = 0 : i64, dist.phase = "forward"} : (!torch.vtensor<[4,4],f32>) -> !torch.vtensor<[2,4],f32>
    %h = torch.aten.mm %part, %v0 {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[2,4],f32>
    %h2 = torch.aten.mul.Scalar %h, %i2 {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.int -> !torch.vtensor<[2,4],f32>
    %h4 = torch.aten.mul.Scalar %h2, %i2 {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.int -> !torch.vtensor<[2,4],f32>
    %hp = torch.aten.add.Tensor %h4, %vp, %i1 {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.vtensor<[2,4],f32>, !torch.int -> !torch.vtensor<[2,4],f32>
    %hd = torch.aten.mul.Scalar %hp, %i2 {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.int -> !torch.vtensor<[2,4],f32>
    %y = torch.aten.mm %hd, %v1 {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[2,4],f32>
    %l = torch.aten.sum %y, %no {dist.phase = "forward"} : !torch.vtensor<[2,4],f32>, !torch.none -> !torch.vtensor<[],f32>
    %gy = torch.aten.ones_like %y, %no, %no, %no, %no, %no {dist.phase = "backward"} : !torch.vtensor<[2,4],f32>, !torch.none, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[2,4],f32>
    %ht = torch.aten.t %hd {dist.phase = "backward"} : !torch.vtensor<[2,4],f32> -> !torch.vtensor<[4,2],f32>
    %gw1 = torch.aten.mm %ht, %gy {dist.phase = "backward", dist.name = "grad:w1"} : !torch.vtensor<[4,2],f32>, !torch.vtensor<[2,4],f32> -> !torch.vtensor<[4,4],f32>
    %v1t = torch.aten.t %v1 {dist.phase = "backward"} : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %ghd = torch.aten.mm %gy, %v1t {dist.phase = "backward"} : !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[2,4],f32>
    %ghp = torch.aten.mul.Scalar %ghd, %i2 {dist.phase = "backward", dist.name = "grad:p"} : !torch.vtensor<[2,4],f32>, !torch.int -> !torch.vtensor<[2,4],f32>
    %gh2 = torch.aten.mul.Scalar %ghp, %i2 {dist.phase = "backward"} : !torch.vtensor<[2,4],f32>, !torch.int -> !torch.vtensor<[2,4],f32>
    %gh = torch.aten.mul.Scalar %gh2, %i2 {dist.phase = "backward"} : !torch.vtensor<[2,4],f32>, !torch.int -> !torch.vtensor<[2,4],f32>
    %xt = torch.aten.t %part {dist.phase = "backward"} : !torch.vtensor<[2,4],f32> -> !torch.vtensor<[4,2],f32>
    %gw0 = torch.aten.mm %xt, %gh {dist.phase = "backward", dist.name = "grad:w0"} : !torch.vtensor<[4,2],f32>, !torch.vtensor<[2,4],f32> -> !torch.vtensor<[4,4],f32>
    %loss2 = torch.aten.add.Tensor %loss, %l, %i1 {dist.phase = "forward"} : !torch.vtensor<[],f32>, !torch.vtensor<[],f32>, !torch.int -> !torch.vtensor<[],f32>
    %g02 = torch.aten.add.Tensor %g0, %gw0, %i1 {dist.phase = "backward"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
    %g12 = torch.aten.add.Tensor %g1, %gw1, %i1 {dist.phase = "backward"} : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
    %gp2 = torch.aten.add.Tensor %gp, %ghp, %i1 {dist.phase = "backward"} : !torch.vtensor<[2,4],f32>, !torch.vtensor<[2,4],f32>, !torch.int -> !torch.vtensor<[2,4],f32>
    %next = torch.prim.TupleConstruct %loss2, %g02, %g12, %gp2 : !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[2,4],f32> -> !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[2,4],f32>>
    "dist.yield"(%next) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[2,4],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[2,4],f32>>, !torch.tuple<vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[2,4],f32>, vtensor<[4,4],f32>>) -> !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[2,4],f32>>
  %r:4 = torch.prim.TupleUnpack %sums : !torch.tuple<vtensor<[],f32>, vtensor<[4,4],f32>, vtensor<[4,4],f32>, vtensor<[2,4],f32>> -> !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[2,4],f32>
  %n0 = torch.aten.sub.Tensor %w0, %r#1, %int1 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
  %n1 = torch.aten.sub.Tensor %w1, %r#2, %int1 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
  %np = torch.aten.sub.Tensor %p, %r#3, %int1 : !torch.vtensor<[2,4],f32>, !torch.vtensor<[2,4],f32>, !torch.int -> !torch.vtensor<[2,4],f32>
  return %r#0, %n0, %n1, %np : !torch.vtensor<[],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[2,4],f32>
}

// CHECK: }) {index = 0 : i64, kind = "F", {{.*}}sums = 0 : i64, sym_name = "stage_0_F"}
// CHECK-NOT: grad:p
// CHECK: }) {index = 0 : i64, kind = "B", sums = 1 : i64, sym_name = "stage_0_B"}
// CHECK: %[[G:.*]] = torch.aten.mul.Scalar %{{.*}} {dist.name = "grad:p"
// CHECK: torch.aten.add.Tensor %{{.*}}, %[[G]]
// CHECK: }) {index = 1 : i64, kind = "B", sums = 2 : i64, sym_name = "stage_1_B"}
// CHECK-NOT: tag = "sum
// CHECK: func.func @step_1({{.*}} {dist.name = "p"
// CHECK-NOT: tag = "sum
