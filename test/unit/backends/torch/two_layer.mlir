// A step of relu(x @ w1) @ w2 with loss sum(y * y) and SGD, at level 3: data 2 x tensor 2 ranks, 2 micro-batches.
// w1 is cut by column, w2 by row, so the forward pass needs one all-reduce over "tensor".
"builtin.module"() ({
  "dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"], ["micro", 2, "time"]]} : () -> ()
  func.func @step(
      %w1: !torch.vtensor<[6,4],f64> {dist.name = "up.weight", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>, dist.global_type = !torch.vtensor<[6,8],f64>},
      %w2: !torch.vtensor<[4,3],f64> {dist.name = "down.weight", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [["tensor"], []], []>, dist.global_type = !torch.vtensor<[8,3],f64>},
      %n: !torch.vtensor<[],f64> {dist.name = "steps", dist.role = "buffer", dist.sharding = #dist.sharding<@mesh, [], []>, dist.global_type = !torch.vtensor<[],f64>},
      %lr: !torch.vtensor<[],f64> {dist.name = "group0.lr", dist.role = "hyper", dist.sharding = #dist.sharding<@mesh, [], []>, dist.global_type = !torch.vtensor<[],f64>},
      %x: !torch.vtensor<[8,6],f64> {dist.name = "x", dist.role = "input", dist.sharding = #dist.sharding<@mesh, [["data", "micro"], []], []>, dist.global_type = !torch.vtensor<[16,6],f64>},
      %seed: !torch.vtensor<[],si64> {dist.name = "seed", dist.role = "seed", dist.sharding = #dist.sharding<@mesh, [], []>, dist.global_type = !torch.vtensor<[],si64>},
      %one: !torch.vtensor<[],f64> {dist.name = "constant0", dist.role = "constant", dist.sharding = #dist.sharding<@mesh, [], []>, dist.global_type = !torch.vtensor<[],f64>}
  ) -> (
      !torch.vtensor<[],f64> {dist.name = "loss", dist.role = "loss", dist.sharding = #dist.sharding<@mesh, [], []>, dist.global_type = !torch.vtensor<[],f64>},
      !torch.vtensor<[6,4],f64> {dist.name = "up.weight", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>, dist.global_type = !torch.vtensor<[6,8],f64>},
      !torch.vtensor<[4,3],f64> {dist.name = "down.weight", dist.role = "param", dist.sharding = #dist.sharding<@mesh, [["tensor"], []], []>, dist.global_type = !torch.vtensor<[8,3],f64>},
      !torch.vtensor<[],f64> {dist.name = "steps", dist.role = "buffer", dist.sharding = #dist.sharding<@mesh, [], []>, dist.global_type = !torch.vtensor<[],f64>},
      !torch.vtensor<[8,3],f64> {dist.name = "prediction", dist.role = "output", dist.sharding = #dist.sharding<@mesh, [["data", "micro"], []], []>, dist.global_type = !torch.vtensor<[16,3],f64>}
  ) {
    %none = torch.constant.none
    %int0 = torch.constant.int 0
    %int1 = torch.constant.int 1
    %int2 = torch.constant.int 2
    %int7 = torch.constant.int 7
    %false = torch.constant.bool false
    %empty = torch.prim.ListConstruct : () -> !torch.list<int>
    %size1 = torch.prim.ListConstruct %int1, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
    %zero = torch.aten.full %empty, %int0, %int7, %none, %none, %none : !torch.list<int>, !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[],f64>
    %z1 = torch.aten.zeros_like %w1, %none, %none, %none, %none, %none : !torch.vtensor<[6,4],f64>, !torch.none, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[6,4],f64>
    %z2 = torch.aten.zeros_like %w2, %none, %none, %none, %none, %none : !torch.vtensor<[4,3],f64>, !torch.none, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4,3],f64>
    %inits = torch.prim.TupleConstruct %zero, %z1, %z2 : !torch.vtensor<[],f64>, !torch.vtensor<[6,4],f64>, !torch.vtensor<[4,3],f64> -> !torch.tuple<vtensor<[],f64>, vtensor<[6,4],f64>, vtensor<[4,3],f64>>
    %captures = torch.prim.TupleConstruct %x, %w1, %w2 : !torch.vtensor<[8,6],f64>, !torch.vtensor<[6,4],f64>, !torch.vtensor<[4,3],f64> -> !torch.tuple<vtensor<[8,6],f64>, vtensor<[6,4],f64>, vtensor<[4,3],f64>>
    %carried, %rows_of = "dist.loop"(%inits, %captures) ({
    ^bb0(%sum: !torch.vtensor<[],f64>, %g1: !torch.vtensor<[6,4],f64>, %g2: !torch.vtensor<[4,3],f64>, %all: !torch.vtensor<[8,6],f64>, %a: !torch.vtensor<[6,4],f64>, %b: !torch.vtensor<[4,3],f64>):
      %none_0 = torch.constant.none
      %i0 = torch.constant.int 0
      %i1 = torch.constant.int 1
      %i2 = torch.constant.int 2
      %rows = "dist.slice"(%all) {axes = ["micro"], dim = 0 : i64, dist.phase = "forward"} : (!torch.vtensor<[8,6],f64>) -> !torch.vtensor<[4,6],f64> loc("model.py":10:3)
      %pre = torch.aten.mm %rows, %a {dist.phase = "forward"} : !torch.vtensor<[4,6],f64>, !torch.vtensor<[6,4],f64> -> !torch.vtensor<[4,4],f64> loc("model.py":11:3)
      %h = torch.aten.relu %pre {dist.phase = "forward"} : !torch.vtensor<[4,4],f64> -> !torch.vtensor<[4,4],f64> loc("model.py":11:3)
      %part = torch.aten.mm %h, %b {dist.phase = "forward"} : !torch.vtensor<[4,4],f64>, !torch.vtensor<[4,3],f64> -> !torch.vtensor<[4,3],f64> loc("model.py":12:3)
      %y = "dist.all_reduce"(%part) {axes = ["tensor"], reduction = "sum", dist.phase = "forward"} : (!torch.vtensor<[4,3],f64>) -> !torch.vtensor<[4,3],f64> loc("model.py":12:3)
      %ht = torch.aten.transpose.int %h, %i0, %i1 {dist.phase = "backward"} : !torch.vtensor<[4,4],f64>, !torch.int, !torch.int -> !torch.vtensor<[4,4],f64> loc("model.py":12:3)
      %sq = torch.aten.mul.Tensor %y, %y {dist.phase = "forward"} : !torch.vtensor<[4,3],f64>, !torch.vtensor<[4,3],f64> -> !torch.vtensor<[4,3],f64> loc("model.py":13:3)
      %l = torch.aten.sum %sq, %none_0 {dist.phase = "forward"} : !torch.vtensor<[4,3],f64>, !torch.none -> !torch.vtensor<[],f64> loc("model.py":13:3)
      %sum1 = torch.aten.add.Tensor %sum, %l, %i1 : !torch.vtensor<[],f64>, !torch.vtensor<[],f64>, !torch.int -> !torch.vtensor<[],f64> loc("model.py":13:3)
      %dy = torch.aten.mul.Scalar %y, %i2 {dist.phase = "backward"} : !torch.vtensor<[4,3],f64>, !torch.int -> !torch.vtensor<[4,3],f64> loc("model.py":13:3)
      %d2 = torch.aten.mm %ht, %dy {dist.phase = "backward"} : !torch.vtensor<[4,4],f64>, !torch.vtensor<[4,3],f64> -> !torch.vtensor<[4,3],f64> loc("model.py":12:3)
      %g2n = torch.aten.add.Tensor %g2, %d2, %i1 : !torch.vtensor<[4,3],f64>, !torch.vtensor<[4,3],f64>, !torch.int -> !torch.vtensor<[4,3],f64> loc("model.py":12:3)
      %bt = torch.aten.transpose.int %b, %i0, %i1 {dist.phase = "backward"} : !torch.vtensor<[4,3],f64>, !torch.int, !torch.int -> !torch.vtensor<[3,4],f64> loc("model.py":12:3)
      %dh = torch.aten.mm %dy, %bt {dist.phase = "backward"} : !torch.vtensor<[4,3],f64>, !torch.vtensor<[3,4],f64> -> !torch.vtensor<[4,4],f64> loc("model.py":12:3)
      %dpre = torch.aten.threshold_backward %dh, %h, %i0 {dist.phase = "backward"} : !torch.vtensor<[4,4],f64>, !torch.vtensor<[4,4],f64>, !torch.int -> !torch.vtensor<[4,4],f64> loc("model.py":11:3)
      %xt = torch.aten.transpose.int %rows, %i0, %i1 {dist.phase = "backward"} : !torch.vtensor<[4,6],f64>, !torch.int, !torch.int -> !torch.vtensor<[6,4],f64> loc("model.py":11:3)
      %d1 = torch.aten.mm %xt, %dpre {dist.phase = "backward"} : !torch.vtensor<[6,4],f64>, !torch.vtensor<[4,4],f64> -> !torch.vtensor<[6,4],f64> loc("model.py":11:3)
      %g1n = torch.aten.add.Tensor %g1, %d1, %i1 : !torch.vtensor<[6,4],f64>, !torch.vtensor<[6,4],f64>, !torch.int -> !torch.vtensor<[6,4],f64> loc("model.py":11:3)
      %following = torch.prim.TupleConstruct %sum1, %g1n, %g2n : !torch.vtensor<[],f64>, !torch.vtensor<[6,4],f64>, !torch.vtensor<[4,3],f64> -> !torch.tuple<vtensor<[],f64>, vtensor<[6,4],f64>, vtensor<[4,3],f64>>
      %row = torch.prim.TupleConstruct %y : !torch.vtensor<[4,3],f64> -> !torch.tuple<vtensor<[4,3],f64>>
      "dist.yield"(%following, %row) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[],f64>, vtensor<[6,4],f64>, vtensor<[4,3],f64>>, !torch.tuple<vtensor<[4,3],f64>>) -> ()
    }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0]}
      : (!torch.tuple<vtensor<[],f64>, vtensor<[6,4],f64>, vtensor<[4,3],f64>>, !torch.tuple<vtensor<[8,6],f64>, vtensor<[6,4],f64>, vtensor<[4,3],f64>>)
      -> (!torch.tuple<vtensor<[],f64>, vtensor<[6,4],f64>, vtensor<[4,3],f64>>, !torch.tuple<vtensor<[8,3],f64>>)
    %acc:3 = torch.prim.TupleUnpack %carried : !torch.tuple<vtensor<[],f64>, vtensor<[6,4],f64>, vtensor<[4,3],f64>> -> !torch.vtensor<[],f64>, !torch.vtensor<[6,4],f64>, !torch.vtensor<[4,3],f64>
    %ys = torch.prim.TupleUnpack %rows_of : !torch.tuple<vtensor<[8,3],f64>> -> !torch.vtensor<[8,3],f64>
    %loss = "dist.all_reduce"(%acc#0) {axes = ["data"], reduction = "sum", dist.phase = "forward"} : (!torch.vtensor<[],f64>) -> !torch.vtensor<[],f64>
    %gw1 = "dist.all_reduce"(%acc#1) {axes = ["data"], reduction = "sum", dist.phase = "backward", dist.name = "grad:up.weight"} : (!torch.vtensor<[6,4],f64>) -> !torch.vtensor<[6,4],f64>
    %gw2 = "dist.all_reduce"(%acc#2) {axes = ["data"], reduction = "sum", dist.phase = "backward", dist.name = "grad:down.weight"} : (!torch.vtensor<[4,3],f64>) -> !torch.vtensor<[4,3],f64>
    %s1 = torch.aten.mul.Tensor %gw1, %lr {dist.phase = "optimizer"} : !torch.vtensor<[6,4],f64>, !torch.vtensor<[],f64> -> !torch.vtensor<[6,4],f64>
    %n1 = torch.aten.sub.Tensor %w1, %s1, %int1 {dist.phase = "optimizer"} : !torch.vtensor<[6,4],f64>, !torch.vtensor<[6,4],f64>, !torch.int -> !torch.vtensor<[6,4],f64>
    %s2 = torch.aten.mul.Tensor %gw2, %lr {dist.phase = "optimizer"} : !torch.vtensor<[4,3],f64>, !torch.vtensor<[],f64> -> !torch.vtensor<[4,3],f64>
    %n2 = torch.aten.sub.Tensor %w2, %s2, %int1 {dist.phase = "optimizer"} : !torch.vtensor<[4,3],f64>, !torch.vtensor<[4,3],f64>, !torch.int -> !torch.vtensor<[4,3],f64>
    %n3 = torch.aten.add.Tensor %n, %one, %int1 {dist.phase = "optimizer"} : !torch.vtensor<[],f64>, !torch.vtensor<[],f64>, !torch.int -> !torch.vtensor<[],f64>
    return %loss, %n1, %n2, %n3, %ys : !torch.vtensor<[],f64>, !torch.vtensor<[6,4],f64>, !torch.vtensor<[4,3],f64>, !torch.vtensor<[],f64>, !torch.vtensor<[8,3],f64>
  }
}) : () -> ()
