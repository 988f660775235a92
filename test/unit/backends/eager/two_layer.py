"""The project's design example, written by hand: a two-layer net's training step at level 1 and at level 3.

The step is ``relu(x @ w1 + b1) @ w2``, the mean of squared errors against ``y``, and SGD with momentum 0.9.
Level 3 is what partition should make of it on the mesh data=2 x tensor=2 (devices) x micro=2 (time):

- ``w1`` is cut by columns and ``w2`` by rows over "tensor" (Megatron's pair): one all-reduce forward, none
  backward;
- the batch of 8 is cut over "data", and each device's 4 rows run in 2 iterations over "micro", which
  accumulate
  the gradients; what they add up to is still a partial sum over "data" and is all-reduced once, after the
  loop;
- ``b1`` lives whole on every device: each takes its slice over "tensor", and the gradient's slices are
  gathered.
"""

from __future__ import annotations

import torch

LEVEL_1 = """
!x  = !torch.vtensor<[8,3],f32>   // a batch of 8 rows
!h  = !torch.vtensor<[8,6],f32>   // hidden activations
!y  = !torch.vtensor<[8,5],f32>
!w1 = !torch.vtensor<[3,6],f32>
!b1 = !torch.vtensor<[6],f32>
!w2 = !torch.vtensor<[6,5],f32>
!s  = !torch.vtensor<[],f32>
!i  = !torch.vtensor<[],si64>

func.func @step(
    %w1: !w1 {dist.role = "param", dist.name = "w1"},
    %b1: !b1 {dist.role = "param", dist.name = "b1"},
    %w2: !w2 {dist.role = "param", dist.name = "w2"},
    %m_w1: !w1 {dist.role = "opt_state", dist.name = "w1/momentum"},
    %m_b1: !b1 {dist.role = "opt_state", dist.name = "b1/momentum"},
    %m_w2: !w2 {dist.role = "opt_state", dist.name = "w2/momentum"},
    %lr: !s {dist.role = "hyper", dist.name = "group0.lr"},
    %x: !x {dist.role = "input", dist.name = "x"},
    %y: !y {dist.role = "input", dist.name = "y"},
    %seed: !i {dist.role = "seed", dist.name = "seed"}
) -> (
    !s {dist.role = "loss", dist.name = "loss"},
    !w1 {dist.role = "param", dist.name = "w1"},
    !b1 {dist.role = "param", dist.name = "b1"},
    !w2 {dist.role = "param", dist.name = "w2"},
    !w1 {dist.role = "opt_state", dist.name = "w1/momentum"},
    !b1 {dist.role = "opt_state", dist.name = "b1/momentum"},
    !w2 {dist.role = "opt_state", dist.name = "w2/momentum"}
) {
  %none = torch.constant.none
  %false = torch.constant.bool false
  %0 = torch.constant.int 0
  %1 = torch.constant.int 1
  %momentum = torch.constant.float 0.9
  %per_element = torch.constant.float 0.025   // 1 / (8 * 5): the loss is a mean
  %twice = torch.constant.float 0.05
  %dims = torch.prim.ListConstruct %0 : (!torch.int) -> !torch.list<int>

  // forward
  %xw = torch.aten.mm %x, %w1 : !x, !w1 -> !h
  %pre = torch.aten.add.Tensor %xw, %b1, %1 : !h, !b1, !torch.int -> !h
  %act = torch.aten.relu %pre : !h -> !h
  %out = torch.aten.mm %act, %w2 : !h, !w2 -> !y
  %gap = torch.aten.sub.Tensor %out, %y, %1 : !y, !y, !torch.int -> !y
  %square = torch.aten.mul.Tensor %gap, %gap : !y, !y -> !y
  %sum = torch.aten.sum %square, %none : !y, !torch.none -> !s
  %loss = torch.aten.mul.Scalar %sum, %per_element : !s, !torch.float -> !s

  // backward
  %g_out = torch.aten.mul.Scalar %gap, %twice : !y, !torch.float -> !y
  %act_t = torch.aten.t %act : !h -> !torch.vtensor<[6,8],f32>
  %g_w2 = torch.aten.mm %act_t, %g_out {dist.name = "grad:w2"} : !torch.vtensor<[6,8],f32>, !y -> !w2
  %w2_t = torch.aten.t %w2 : !w2 -> !torch.vtensor<[5,6],f32>
  %g_act = torch.aten.mm %g_out, %w2_t : !y, !torch.vtensor<[5,6],f32> -> !h
  %g_pre = torch.aten.threshold_backward %g_act, %pre, %0 : !h, !h, !torch.int -> !h
  %g_b1 = torch.aten.sum.dim_IntList %g_pre, %dims, %false, %none {dist.name = "grad:b1"}
      : !h, !torch.list<int>, !torch.bool, !torch.none -> !b1
  %x_t = torch.aten.t %x : !x -> !torch.vtensor<[3,8],f32>
  %g_w1 = torch.aten.mm %x_t, %g_pre {dist.name = "grad:w1"} : !torch.vtensor<[3,8],f32>, !h -> !w1

  // optimizer
  %d_w1 = torch.aten.mul.Scalar %m_w1, %momentum : !w1, !torch.float -> !w1
  %d_b1 = torch.aten.mul.Scalar %m_b1, %momentum : !b1, !torch.float -> !b1
  %d_w2 = torch.aten.mul.Scalar %m_w2, %momentum : !w2, !torch.float -> !w2
  %n_w1 = torch.aten.add.Tensor %d_w1, %g_w1, %1 : !w1, !w1, !torch.int -> !w1
  %n_b1 = torch.aten.add.Tensor %d_b1, %g_b1, %1 : !b1, !b1, !torch.int -> !b1
  %n_w2 = torch.aten.add.Tensor %d_w2, %g_w2, %1 : !w2, !w2, !torch.int -> !w2
  %u_w1 = torch.aten.mul.Tensor %n_w1, %lr : !w1, !s -> !w1
  %u_b1 = torch.aten.mul.Tensor %n_b1, %lr : !b1, !s -> !b1
  %u_w2 = torch.aten.mul.Tensor %n_w2, %lr : !w2, !s -> !w2
  %p_w1 = torch.aten.sub.Tensor %w1, %u_w1, %1 : !w1, !w1, !torch.int -> !w1
  %p_b1 = torch.aten.sub.Tensor %b1, %u_b1, %1 : !b1, !b1, !torch.int -> !b1
  %p_w2 = torch.aten.sub.Tensor %w2, %u_w2, %1 : !w2, !w2, !torch.int -> !w2
  return %loss, %p_w1, %p_b1, %p_w2, %n_w1, %n_b1, %n_w2 : !s, !w1, !b1, !w2, !w1, !b1, !w2
}
"""

LEVEL_3 = """
// One rank's shapes. In comments, the axes that cut each dim.
!x   = !torch.vtensor<[4,3],f32>   // [data, -]
!y   = !torch.vtensor<[4,5],f32>   // [data, -]
!w1  = !torch.vtensor<[3,3],f32>   // [-, tensor]
!b1  = !torch.vtensor<[6],f32>     // whole
!w2  = !torch.vtensor<[3,5],f32>   // [tensor, -]
!s   = !torch.vtensor<[],f32>
!i   = !torch.vtensor<[],si64>
// Inside the loop.
!xi  = !torch.vtensor<[2,3],f32>   // [data micro, -]
!hi  = !torch.vtensor<[2,3],f32>   // [data micro, tensor]
!yi  = !torch.vtensor<[2,5],f32>   // [data micro, -]
!bi  = !torch.vtensor<[3],f32>     // [tensor]
// The loss and the gradients of w1, b1, w2; and x, y, w1, b1, w2.
!sums = !torch.tuple<vtensor<[],f32>, vtensor<[3,3],f32>, vtensor<[3],f32>, vtensor<[3,5],f32>>
!same = !torch.tuple<vtensor<[4,3],f32>, vtensor<[4,5],f32>, vtensor<[3,3],f32>, vtensor<[3],f32>, vtensor<[3,5],f32>>

#whole = #dist.sharding<@mesh, [], []>
#rows  = #dist.sharding<@mesh, [["data"], []], []>
#w1    = #dist.sharding<@mesh, [[], ["tensor"]], []>
#b1    = #dist.sharding<@mesh, [[]], []>
#w2    = #dist.sharding<@mesh, [["tensor"], []], []>

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"], ["micro", 2, "time"]]} : () -> ()

func.func @step(
    %w1: !w1 {dist.role = "param", dist.name = "w1", dist.sharding = #w1, dist.global_type = !torch.vtensor<[3,6],f32>},
    %b1: !b1 {dist.role = "param", dist.name = "b1", dist.sharding = #b1, dist.global_type = !b1},
    %w2: !w2 {dist.role = "param", dist.name = "w2", dist.sharding = #w2, dist.global_type = !torch.vtensor<[6,5],f32>},
    %m_w1: !w1 {dist.role = "opt_state", dist.name = "w1/momentum", dist.sharding = #w1, dist.global_type = !torch.vtensor<[3,6],f32>},
    %m_b1: !b1 {dist.role = "opt_state", dist.name = "b1/momentum", dist.sharding = #b1, dist.global_type = !b1},
    %m_w2: !w2 {dist.role = "opt_state", dist.name = "w2/momentum", dist.sharding = #w2, dist.global_type = !torch.vtensor<[6,5],f32>},
    %lr: !s {dist.role = "hyper", dist.name = "group0.lr", dist.sharding = #whole, dist.global_type = !s},
    %x: !x {dist.role = "input", dist.name = "x", dist.sharding = #rows, dist.global_type = !torch.vtensor<[8,3],f32>},
    %y: !y {dist.role = "input", dist.name = "y", dist.sharding = #rows, dist.global_type = !torch.vtensor<[8,5],f32>},
    %seed: !i {dist.role = "seed", dist.name = "seed", dist.sharding = #whole, dist.global_type = !i}
) -> (
    !s {dist.role = "loss", dist.name = "loss", dist.sharding = #whole, dist.global_type = !s},
    !w1 {dist.role = "param", dist.name = "w1", dist.sharding = #w1, dist.global_type = !torch.vtensor<[3,6],f32>},
    !b1 {dist.role = "param", dist.name = "b1", dist.sharding = #b1, dist.global_type = !b1},
    !w2 {dist.role = "param", dist.name = "w2", dist.sharding = #w2, dist.global_type = !torch.vtensor<[6,5],f32>},
    !w1 {dist.role = "opt_state", dist.name = "w1/momentum", dist.sharding = #w1, dist.global_type = !torch.vtensor<[3,6],f32>},
    !b1 {dist.role = "opt_state", dist.name = "b1/momentum", dist.sharding = #b1, dist.global_type = !b1},
    !w2 {dist.role = "opt_state", dist.name = "w2/momentum", dist.sharding = #w2, dist.global_type = !torch.vtensor<[6,5],f32>}
) {
  %none = torch.constant.none
  %0 = torch.constant.int 0
  %1 = torch.constant.int 1
  %3 = torch.constant.int 3
  %5 = torch.constant.int 5
  %momentum = torch.constant.float 0.9
  %shape_w1 = torch.prim.ListConstruct %3, %3 : (!torch.int, !torch.int) -> !torch.list<int>
  %shape_b1 = torch.prim.ListConstruct %3 : (!torch.int) -> !torch.list<int>
  %shape_w2 = torch.prim.ListConstruct %3, %5 : (!torch.int, !torch.int) -> !torch.list<int>
  %shape_s = torch.prim.ListConstruct : () -> !torch.list<int>
  %f32 = torch.constant.int 6
  %z_w1 = torch.aten.full %shape_w1, %0, %f32, %none, %none, %none
      : !torch.list<int>, !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> !w1
  %z_b1 = torch.aten.full %shape_b1, %0, %f32, %none, %none, %none
      : !torch.list<int>, !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> !bi
  %z_w2 = torch.aten.full %shape_w2, %0, %f32, %none, %none, %none
      : !torch.list<int>, !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> !w2
  %z_s = torch.aten.full %shape_s, %0, %f32, %none, %none, %none
      : !torch.list<int>, !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> !s

  // This device's columns of b1: a slice of a whole value, no communication.
  %b1_mine = "dist.slice"(%b1) {dim = 0, axes = ["tensor"]} : (!b1) -> !bi

  // Carried: the loss and gradients so far. Captured: what is the same in every iteration.
  %zeros = torch.prim.TupleConstruct %z_s, %z_w1, %z_b1, %z_w2 : !s, !w1, !bi, !w2 -> !sums
  %same = torch.prim.TupleConstruct %x, %y, %w1, %b1_mine, %w2 : !x, !y, !w1, !bi, !w2 -> !same
  %sums = "dist.loop"(%zeros, %same) ({
  ^bb0(%s_loss: !s, %s_w1: !w1, %s_b1: !bi, %s_w2: !w2, %xs: !x, %ys: !y, %cw1: !w1, %cb1: !bi, %cw2: !w2):
    %cnone = torch.constant.none
    %false = torch.constant.bool false
    %c0 = torch.constant.int 0
    %c1 = torch.constant.int 1
    %per_element = torch.constant.float 0.025   // of the whole batch: what iterations and devices hold are its terms
    %twice = torch.constant.float 0.05
    %dims = torch.prim.ListConstruct %c0 : (!torch.int) -> !torch.list<int>

    // forward, on the rows of this iteration
    %xi = "dist.slice"(%xs) {dim = 0, axes = ["micro"]} : (!x) -> !xi
    %yi = "dist.slice"(%ys) {dim = 0, axes = ["micro"]} : (!y) -> !yi
    %xw = torch.aten.mm %xi, %cw1 : !xi, !w1 -> !hi
    %pre = torch.aten.add.Tensor %xw, %cb1, %c1 : !hi, !bi, !torch.int -> !hi
    %act = torch.aten.relu %pre : !hi -> !hi
    %terms = torch.aten.mm %act, %cw2 : !hi, !w2 -> !yi   // partial sum over tensor
    %out = "dist.all_reduce"(%terms) {axes = ["tensor"], reduction = "sum"} : (!yi) -> !yi
    %gap = torch.aten.sub.Tensor %out, %yi, %c1 : !yi, !yi, !torch.int -> !yi
    %square = torch.aten.mul.Tensor %gap, %gap : !yi, !yi -> !yi
    %sum = torch.aten.sum %square, %cnone : !yi, !torch.none -> !s
    %mean = torch.aten.mul.Scalar %sum, %per_element : !s, !torch.float -> !s

    // backward
    %g_out = torch.aten.mul.Scalar %gap, %twice : !yi, !torch.float -> !yi
    %act_t = torch.aten.t %act : !hi -> !torch.vtensor<[3,2],f32>
    %g_w2 = torch.aten.mm %act_t, %g_out : !torch.vtensor<[3,2],f32>, !yi -> !w2
    %w2_t = torch.aten.t %cw2 : !w2 -> !torch.vtensor<[5,3],f32>
    %g_act = torch.aten.mm %g_out, %w2_t : !yi, !torch.vtensor<[5,3],f32> -> !hi
    %g_pre = torch.aten.threshold_backward %g_act, %pre, %c0 : !hi, !hi, !torch.int -> !hi
    %g_b1 = torch.aten.sum.dim_IntList %g_pre, %dims, %false, %cnone
        : !hi, !torch.list<int>, !torch.bool, !torch.none -> !bi
    %x_t = torch.aten.t %xi : !xi -> !torch.vtensor<[3,2],f32>
    %g_w1 = torch.aten.mm %x_t, %g_pre : !torch.vtensor<[3,2],f32>, !hi -> !w1

    // accumulate
    %n_loss = torch.aten.add.Tensor %s_loss, %mean, %c1 : !s, !s, !torch.int -> !s
    %a_w1 = torch.aten.add.Tensor %s_w1, %g_w1, %c1 : !w1, !w1, !torch.int -> !w1
    %a_b1 = torch.aten.add.Tensor %s_b1, %g_b1, %c1 : !bi, !bi, !torch.int -> !bi
    %a_w2 = torch.aten.add.Tensor %s_w2, %g_w2, %c1 : !w2, !w2, !torch.int -> !w2
    %next = torch.prim.TupleConstruct %n_loss, %a_w1, %a_b1, %a_w2 : !s, !w1, !bi, !w2 -> !sums
    "dist.yield"(%next) {operandSegmentSizes = array<i32: 1, 0>} : (!sums) -> ()
  }) {axis = "micro", stack_dims = [], operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 0>}
      : (!sums, !same) -> !sums
  %sum:4 = torch.prim.TupleUnpack %sums : !sums -> !s, !w1, !bi, !w2

  // The sums are over this device's rows; those of the other devices on "data" are still missing.
  %loss = "dist.all_reduce"(%sum#0) {axes = ["data"], reduction = "sum"} : (!s) -> !s
  %g_w1 = "dist.all_reduce"(%sum#1) {axes = ["data"], reduction = "sum", dist.name = "grad:w1", dist.shardings = [#w1]} : (!w1) -> !w1
  %g_b1_mine = "dist.all_reduce"(%sum#2) {axes = ["data"], reduction = "sum"} : (!bi) -> !bi
  %g_w2 = "dist.all_reduce"(%sum#3) {axes = ["data"], reduction = "sum", dist.name = "grad:w2", dist.shardings = [#w2]} : (!w2) -> !w2
  %g_b1 = "dist.all_gather"(%g_b1_mine) {dim = 0, axes = ["tensor"], dist.name = "grad:b1", dist.shardings = [#b1]} : (!bi) -> !b1

  // optimizer
  %d_w1 = torch.aten.mul.Scalar %m_w1, %momentum : !w1, !torch.float -> !w1
  %d_b1 = torch.aten.mul.Scalar %m_b1, %momentum : !b1, !torch.float -> !b1
  %d_w2 = torch.aten.mul.Scalar %m_w2, %momentum : !w2, !torch.float -> !w2
  %n_w1 = torch.aten.add.Tensor %d_w1, %g_w1, %1 : !w1, !w1, !torch.int -> !w1
  %n_b1 = torch.aten.add.Tensor %d_b1, %g_b1, %1 : !b1, !b1, !torch.int -> !b1
  %n_w2 = torch.aten.add.Tensor %d_w2, %g_w2, %1 : !w2, !w2, !torch.int -> !w2
  %u_w1 = torch.aten.mul.Tensor %n_w1, %lr : !w1, !s -> !w1
  %u_b1 = torch.aten.mul.Tensor %n_b1, %lr : !b1, !s -> !b1
  %u_w2 = torch.aten.mul.Tensor %n_w2, %lr : !w2, !s -> !w2
  %p_w1 = torch.aten.sub.Tensor %w1, %u_w1, %1 : !w1, !w1, !torch.int -> !w1
  %p_b1 = torch.aten.sub.Tensor %b1, %u_b1, %1 : !b1, !b1, !torch.int -> !b1
  %p_w2 = torch.aten.sub.Tensor %w2, %u_w2, %1 : !w2, !w2, !torch.int -> !w2
  return %loss, %p_w1, %p_b1, %p_w2, %n_w1, %n_b1, %n_w2 : !s, !w1, !b1, !w2, !w1, !b1, !w2
}
"""  # noqa: E501


def inputs() -> dict[tuple[str, str], torch.Tensor]:
    """A global value for every argument."""
    shapes = {"w1": (3, 6), "b1": (6,), "w2": (6, 5)}
    make = torch.Generator().manual_seed(0)
    values = {("param", name): torch.randn(shape, generator=make) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        values["opt_state", f"{name}/momentum"] = torch.randn(shape, generator=make)
    values["hyper", "group0.lr"] = torch.tensor(0.1)
    values["input", "x"] = torch.randn(8, 3, generator=make)
    values["input", "y"] = torch.randn(8, 5, generator=make)
    values["seed", "seed"] = torch.tensor(7)
    return values


def trained_with_torch(steps: int) -> tuple[list[float], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """What PyTorch itself makes of the same step: losses, parameters after the last step and its gradients.
    In f64.
    """
    values = {key: t.double() for key, t in inputs().items()}
    params = {name: t.clone().requires_grad_() for (role, name), t in values.items() if role == "param"}
    optimizer = torch.optim.SGD(params.values(), lr=float(values["hyper", "group0.lr"]), momentum=0.9)
    for name, param in params.items():
        optimizer.state[param]["momentum_buffer"] = values["opt_state", f"{name}/momentum"].clone()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        hidden = torch.relu(values["input", "x"] @ params["w1"] + params["b1"])
        loss = torch.nn.functional.mse_loss(hidden @ params["w2"], values["input", "y"])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    gradients = {name: param.grad for name, param in params.items() if param.grad is not None}
    assert gradients.keys() == params.keys()
    return losses, {name: param.detach() for name, param in params.items()}, gradients
