// RUN: shardc-opt --split-input-file --pipeline dist-propagate,dist-insert-reshards %s | filecheck %s

// What ZeRO's cuts become.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// ZeRO-3: the parameter is stored in pieces and gathered in each phase anew, so that nobody keeps it whole in between.
// The gradient goes from terms to pieces in one step, and the update runs on pieces.
func.func @gathered_again(
    %x: !torch.vtensor<[8,16],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [["data"], []], []>},
    %w: !torch.vtensor<[16,16],f32> {dist.role = "param", dist.name = "w", dist.refine = [[1, "data", -1]]}) -> (!torch.vtensor<[16,16],f32> {dist.role = "param", dist.name = "w"}) {
  // CHECK-LABEL: func.func @gathered_again
  // CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
  // CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
  // CHECK: %0 = "dist.reshard"(%arg1) {dist.phase = "forward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  // CHECK-NEXT: %1 = torch.aten.mm %arg0, %0 {dist.phase = "forward", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: %2 = torch.aten.relu %1 {dist.phase = "forward", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: %3 = "dist.reshard"(%arg1) {dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  // CHECK-NEXT: %4 = torch.aten.mm %2, %3 {dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: %5 = torch.aten.t %arg0 {dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["data"]], []>]}
  // CHECK-NEXT: %6 = torch.aten.mm %5, %4 {dist.name = "grad:w#0", dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "data"]]>]}
  // CHECK-NEXT: %7 = "dist.reshard"(%6) {dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>], sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>}
  // CHECK-NEXT: %8 = torch.aten.sub.Tensor %arg1, %7, %int1 {dist.phase = "optimizer", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: return %8
  %int1 = torch.constant.int 1
  %0 = torch.aten.mm %x, %w {dist.phase = "forward"} : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten.relu %0 {dist.phase = "forward"} : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  %2 = torch.aten.mm %1, %w {dist.phase = "backward"} : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %3 = torch.aten.t %x {dist.phase = "backward"} : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,8],f32>
  %4 = torch.aten.mm %3, %2 {dist.phase = "backward", dist.name = "grad:w#0"} : !torch.vtensor<[16,8],f32>, !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,16],f32>
  %5 = torch.aten.sub.Tensor %w, %4, %int1 {dist.phase = "optimizer"} : !torch.vtensor<[16,16],f32>, !torch.vtensor<[16,16],f32>, !torch.int -> !torch.vtensor<[16,16],f32>
  return %5 : !torch.vtensor<[16,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// ZeRO-1: parameters are whole, the state is in pieces. The update runs on pieces and the new parameter is gathered at
// the end, as results lie like the arguments they replace.
func.func @state_in_pieces(
    %x: !torch.vtensor<[8,16],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [["data"], []], []>},
    %w: !torch.vtensor<[16,16],f32> {dist.role = "param", dist.name = "w"},
    %m: !torch.vtensor<[16,16],f32> {dist.role = "opt_state", dist.name = "m", dist.refine = [[1, "data", -1]]}) -> (!torch.vtensor<[16,16],f32> {dist.role = "param", dist.name = "w"}, !torch.vtensor<[16,16],f32> {dist.role = "opt_state", dist.name = "m"}) {
  // CHECK-LABEL: func.func @state_in_pieces
  // CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
  // CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], []], []>
  // CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
  // CHECK: %0 = torch.aten.t %arg0 {dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["data"]], []>]}
  // CHECK-NEXT: %1 = torch.aten.mm %0, %arg0 {dist.name = "grad:w#0", dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "data"]]>]}
  // CHECK-NEXT: %2 = "dist.reshard"(%1) {dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>], sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>}
  // CHECK-NEXT: %3 = torch.aten.add.Tensor %arg2, %2, %int1 {dist.phase = "optimizer", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: %4 = "dist.reshard"(%arg1) {dist.phase = "optimizer", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>], sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>}
  // CHECK-NEXT: %5 = torch.aten.sub.Tensor %4, %3, %int1 {dist.phase = "optimizer", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: %6 = "dist.reshard"(%5) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  // CHECK-NEXT: return %6, %3
  %int1 = torch.constant.int 1
  %0 = torch.aten.t %x {dist.phase = "backward"} : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,8],f32>
  %1 = torch.aten.mm %0, %x {dist.phase = "backward", dist.name = "grad:w#0"} : !torch.vtensor<[16,8],f32>, !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,16],f32>
  %2 = torch.aten.add.Tensor %m, %1, %int1 {dist.phase = "optimizer"} : !torch.vtensor<[16,16],f32>, !torch.vtensor<[16,16],f32>, !torch.int -> !torch.vtensor<[16,16],f32>
  %3 = torch.aten.sub.Tensor %w, %2, %int1 {dist.phase = "optimizer"} : !torch.vtensor<[16,16],f32>, !torch.vtensor<[16,16],f32>, !torch.int -> !torch.vtensor<[16,16],f32>
  return %3, %2 : !torch.vtensor<[16,16],f32>, !torch.vtensor<[16,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// ZeRO-2: a gradient that the plan cuts itself is reduced where it is made, before the learning rate scales it, so that
// a time loop carries pieces. dist.reduce_first tells partition so.
func.func @gradient_in_pieces(
    %x: !torch.vtensor<[8,16],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [["data"], []], []>},
    %lr: !torch.vtensor<[],f32> {dist.role = "hyper", dist.name = "lr"},
    %w: !torch.vtensor<[16,16],f32> {dist.role = "param", dist.name = "w"}) -> (!torch.vtensor<[16,16],f32> {dist.role = "param", dist.name = "w"}) {
  // CHECK-LABEL: func.func @gradient_in_pieces
  // CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
  // CHECK-SAME: dist.sharding = #dist.sharding<@mesh, [], []>
  // CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], []], []>
  // CHECK: %0 = torch.aten.t %arg0 {dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["data"]], []>]}
  // CHECK-NEXT: %1 = torch.aten.mm %0, %arg0 {dist.name = "grad:w#0", dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "data"]]>]}
  // CHECK-NEXT: %2 = "dist.reshard"(%1) {dist.phase = "backward", dist.reduce_first, dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>], sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>}
  // CHECK-NEXT: %3 = torch.aten.mul.Tensor %2, %arg1 {dist.phase = "optimizer", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: %4 = "dist.reshard"(%arg2) {dist.phase = "optimizer", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>], sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>}
  // CHECK-NEXT: %5 = torch.aten.sub.Tensor %4, %3, %int1 {dist.phase = "optimizer", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: %6 = "dist.reshard"(%5) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  // CHECK-NEXT: return %6
  %int1 = torch.constant.int 1
  %0 = torch.aten.t %x {dist.phase = "backward"} : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,8],f32>
  %1 = torch.aten.mm %0, %x {dist.phase = "backward", dist.name = "grad:w#0", dist.refine = [[1, "data", -1]]} : !torch.vtensor<[16,8],f32>, !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,16],f32>
  %2 = torch.aten.mul.Tensor %1, %lr {dist.phase = "optimizer"} : !torch.vtensor<[16,16],f32>, !torch.vtensor<[],f32> -> !torch.vtensor<[16,16],f32>
  %3 = torch.aten.sub.Tensor %w, %2, %int1 {dist.phase = "optimizer"} : !torch.vtensor<[16,16],f32>, !torch.vtensor<[16,16],f32>, !torch.int -> !torch.vtensor<[16,16],f32>
  return %3 : !torch.vtensor<[16,16],f32>
}
