// RUN: shardc-opt --split-input-file --pipeline dist-propagate,dist-insert-reshards,dist-partition %s | filecheck %s

// A time axis becomes a dist.loop: its shards run one after the other. dist.slice takes an iteration's part of what
// comes from outside, sums over iterations are carried, pieces are stacked.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 2, "time"]]} : () -> ()

// Gradient accumulation. The gradient is a sum over "micro" (carried) and over "data" (one all-reduce, after the loop).
// Inputs lie outside as the devices cut them, [4,16]; inside an iteration sees [2,16].
func.func @accumulate(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data", "micro"], []], []>},
    %w: !torch.vtensor<[16,16],f32> {dist.role = "param", dist.name = "w"}) -> (!torch.vtensor<[16,16],f32> {dist.role = "param", dist.name = "w"}) {
  // CHECK-LABEL: func.func @accumulate
  // CHECK-SAME: %arg0: !torch.vtensor<[4,16],f32>
  // CHECK-SAME: %arg1: !torch.vtensor<[16,16],f32>
  // CHECK: %1 = torch.aten.full %0, %float0.000000e00, %int6, %none, %cpu, %false : !torch.list<int>, !torch.float, !torch.int, !torch.none, !torch.Device, !torch.bool -> !torch.vtensor<[16,16],f32>
  // CHECK-NEXT: %2 = torch.prim.TupleConstruct %1 : !torch.vtensor<[16,16],f32> -> !torch.tuple<vtensor<[16,16],f32>>
  // CHECK-NEXT: %3 = torch.prim.TupleConstruct %arg0, %arg1 : !torch.vtensor<[4,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.tuple<vtensor<[4,16],f32>, vtensor<[16,16],f32>>
  // CHECK-NEXT: %4 = "dist.loop"(%2, %3) ({
  // CHECK-NEXT: ^bb0(%arg2: !torch.vtensor<[16,16],f32>, %arg3: !torch.vtensor<[4,16],f32>, %arg4: !torch.vtensor<[16,16],f32>):
  // CHECK: %8 = "dist.slice"(%arg3) {axes = ["micro"], dim = 0 : i64, dist.phase = "forward", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data", "micro"], []], []>]} : (!torch.vtensor<[4,16],f32>) -> !torch.vtensor<[2,16],f32>
  // CHECK-NEXT: %9 = torch.aten.mm %8, %arg4 {dist.phase = "forward", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data", "micro"], []], []>]} : !torch.vtensor<[2,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[2,16],f32>
  // CHECK-NEXT: %10 = torch.aten.t %8 {dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["data", "micro"]], []>]} : !torch.vtensor<[2,16],f32> -> !torch.vtensor<[16,2],f32>
  // CHECK-NEXT: %11 = torch.aten.mm %10, %9 {dist.name = "grad:w#0", dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "data", "micro"]]>]} : !torch.vtensor<[16,2],f32>, !torch.vtensor<[2,16],f32> -> !torch.vtensor<[16,16],f32>
  // CHECK-NEXT: %12 = torch.aten.add.Tensor %arg2, %11, %int1_0 {dist.phase = "backward"} : !torch.vtensor<[16,16],f32>, !torch.vtensor<[16,16],f32>, !torch.int -> !torch.vtensor<[16,16],f32>
  // CHECK-NEXT: %13 = torch.prim.TupleConstruct %12 : !torch.vtensor<[16,16],f32> -> !torch.tuple<vtensor<[16,16],f32>>
  // CHECK-NEXT: "dist.yield"(%13) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[16,16],f32>>) -> ()
  // CHECK-NEXT: }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[16,16],f32>>, !torch.tuple<vtensor<[4,16],f32>, vtensor<[16,16],f32>>) -> !torch.tuple<vtensor<[16,16],f32>>
  // CHECK-NEXT: %5 = torch.prim.TupleUnpack %4 : !torch.tuple<vtensor<[16,16],f32>> -> !torch.vtensor<[16,16],f32>
  // CHECK-NEXT: %6 = "dist.all_reduce"(%5) {axes = ["data"], dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], reduction = "sum"} : (!torch.vtensor<[16,16],f32>) -> !torch.vtensor<[16,16],f32>
  // CHECK-NEXT: %7 = torch.aten.sub.Tensor %arg1, %6, %int1 {dist.phase = "optimizer", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]} : !torch.vtensor<[16,16],f32>, !torch.vtensor<[16,16],f32>, !torch.int -> !torch.vtensor<[16,16],f32>
  // CHECK-NEXT: return %7 : !torch.vtensor<[16,16],f32>
  %int1 = torch.constant.int 1
  %0 = torch.aten.mm %x, %w {dist.phase = "forward"} : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten.t %x {dist.phase = "backward"} : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,8],f32>
  %2 = torch.aten.mm %1, %0 {dist.phase = "backward", dist.name = "grad:w#0"} : !torch.vtensor<[16,8],f32>, !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,16],f32>
  %3 = torch.aten.sub.Tensor %w, %2, %int1 {dist.phase = "optimizer"} : !torch.vtensor<[16,16],f32>, !torch.vtensor<[16,16],f32>, !torch.int -> !torch.vtensor<[16,16],f32>
  return %3 : !torch.vtensor<[16,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 2, "time"]]} : () -> ()

// What is returned per row of the batch is stacked: iteration after iteration along its dim.
func.func @stacked(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data", "micro"], []], []>}) -> (!torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) {
  // CHECK-LABEL: func.func @stacked
  // CHECK-SAME: %arg0: !torch.vtensor<[4,16],f32>
  // CHECK: %0 = torch.prim.TupleConstruct %arg0 : !torch.vtensor<[4,16],f32> -> !torch.tuple<vtensor<[4,16],f32>>
  // CHECK-NEXT: %1 = "dist.loop"(%0) ({
  // CHECK-NEXT: ^bb0(%arg1: !torch.vtensor<[4,16],f32>):
  // CHECK-NEXT: %3 = "dist.slice"(%arg1) {axes = ["micro"], dim = 0 : i64, dist.shardings = [#dist.sharding<@mesh, {{\[}}["data", "micro"], []], []>]} : (!torch.vtensor<[4,16],f32>) -> !torch.vtensor<[2,16],f32>
  // CHECK-NEXT: %4 = torch.aten.relu %3 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data", "micro"], []], []>]} : !torch.vtensor<[2,16],f32> -> !torch.vtensor<[2,16],f32>
  // CHECK-NEXT: %5 = torch.prim.TupleConstruct %4 : !torch.vtensor<[2,16],f32> -> !torch.tuple<vtensor<[2,16],f32>>
  // CHECK-NEXT: "dist.yield"(%5) {operandSegmentSizes = array<i32: 0, 1>} : (!torch.tuple<vtensor<[2,16],f32>>) -> ()
  // CHECK-NEXT: }) {axis = "micro", operandSegmentSizes = array<i32: 0, 1>, resultSegmentSizes = array<i32: 0, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[4,16],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  // CHECK-NEXT: %2 = torch.prim.TupleUnpack %1 : !torch.tuple<vtensor<[4,16],f32>> -> !torch.vtensor<[4,16],f32>
  // CHECK-NEXT: return %2 : !torch.vtensor<[4,16],f32>
  %0 = torch.aten.relu %x : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 2, "time"]]} : () -> ()

// ZeRO-2: the gradient's own annotation has the devices sum in every iteration, so that only a piece is carried.
func.func @cut_accumulator(
    %x: !torch.vtensor<[8,16],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [["data", "micro"], []], []>},
    %m: !torch.vtensor<[16,16],f32> {dist.role = "opt_state", dist.name = "m", dist.refine = [[1, "data", -1]]}) -> (!torch.vtensor<[16,16],f32> {dist.role = "opt_state", dist.name = "m"}) {
  // CHECK-LABEL: func.func @cut_accumulator
  // CHECK-SAME: %arg0: !torch.vtensor<[4,16],f32>
  // CHECK-SAME: %arg1: !torch.vtensor<[8,16],f32>
  // CHECK: %1 = torch.aten.full %0, %float0.000000e00, %int6, %none, %cpu, %false : !torch.list<int>, !torch.float, !torch.int, !torch.none, !torch.Device, !torch.bool -> !torch.vtensor<[8,16],f32>
  // CHECK-NEXT: %2 = torch.prim.TupleConstruct %1 : !torch.vtensor<[8,16],f32> -> !torch.tuple<vtensor<[8,16],f32>>
  // CHECK-NEXT: %3 = torch.prim.TupleConstruct %arg0 : !torch.vtensor<[4,16],f32> -> !torch.tuple<vtensor<[4,16],f32>>
  // CHECK-NEXT: %4 = "dist.loop"(%2, %3) ({
  // CHECK-NEXT: ^bb0(%arg2: !torch.vtensor<[8,16],f32>, %arg3: !torch.vtensor<[4,16],f32>):
  // CHECK: %7 = "dist.slice"(%arg3) {axes = ["micro"], dim = 0 : i64, dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data", "micro"], []], []>]} : (!torch.vtensor<[4,16],f32>) -> !torch.vtensor<[2,16],f32>
  // CHECK-NEXT: %8 = torch.aten.t %7 {dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["data", "micro"]], []>]} : !torch.vtensor<[2,16],f32> -> !torch.vtensor<[16,2],f32>
  // CHECK-NEXT: %9 = torch.aten.mm %8, %7 {dist.name = "grad:w#0", dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "data", "micro"]]>]} : !torch.vtensor<[16,2],f32>, !torch.vtensor<[2,16],f32> -> !torch.vtensor<[16,16],f32>
  // CHECK-NEXT: %10 = "dist.reduce_scatter"(%9) {axes = ["data"], dim = 0 : i64, dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], {{\[}}["sum", "micro"]]>], reduction = "sum"} : (!torch.vtensor<[16,16],f32>) -> !torch.vtensor<[8,16],f32>
  // CHECK-NEXT: %11 = torch.aten.add.Tensor %arg2, %10, %int1_0 {dist.phase = "backward"} : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  // CHECK-NEXT: %12 = torch.prim.TupleConstruct %11 : !torch.vtensor<[8,16],f32> -> !torch.tuple<vtensor<[8,16],f32>>
  // CHECK-NEXT: "dist.yield"(%12) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[8,16],f32>>) -> ()
  // CHECK-NEXT: }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 0>, stack_dims = []} : (!torch.tuple<vtensor<[8,16],f32>>, !torch.tuple<vtensor<[4,16],f32>>) -> !torch.tuple<vtensor<[8,16],f32>>
  // CHECK-NEXT: %5 = torch.prim.TupleUnpack %4 : !torch.tuple<vtensor<[8,16],f32>> -> !torch.vtensor<[8,16],f32>
  // CHECK-NEXT: %6 = torch.aten.add.Tensor %arg1, %5, %int1 {dist.phase = "optimizer", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]} : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  // CHECK-NEXT: return %6 : !torch.vtensor<[8,16],f32>
  %int1 = torch.constant.int 1
  %0 = torch.aten.t %x {dist.phase = "backward"} : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,8],f32>
  %1 = torch.aten.mm %0, %x {dist.phase = "backward", dist.name = "grad:w#0", dist.refine = [[1, "data", -1]]} : !torch.vtensor<[16,8],f32>, !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,16],f32>
  %2 = torch.aten.add.Tensor %m, %1, %int1 {dist.phase = "optimizer"} : !torch.vtensor<[16,16],f32>, !torch.vtensor<[16,16],f32>, !torch.int -> !torch.vtensor<[16,16],f32>
  return %2 : !torch.vtensor<[16,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 2, "time"]]} : () -> ()

// A maximum over iterations starts from minus infinity, and their maxima are combined by a maximum.
func.func @maximum(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data", "micro"], []], []>}) -> !torch.vtensor<[16],f32> {
  // CHECK-LABEL: func.func @maximum
  // CHECK: %float-Inf = torch.constant.float 0xFFF0000000000000
  // CHECK: %1 = torch.aten.full %0, %float-Inf, {{.*}} -> !torch.vtensor<[16],f32>
  // CHECK: %9 = torch.aten.amax
  // CHECK-NEXT: %10 = torch.aten.maximum %arg1, %9
  // CHECK: %6 = "dist.all_reduce"(%5) {{.*}} reduction = "max"
  %dim = torch.constant.int 0
  %false = torch.constant.bool false
  %dims = torch.prim.ListConstruct %dim : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.amax %x, %dims, %false : !torch.vtensor<[8,16],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[16],f32>
  return %0 : !torch.vtensor<[16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 2, "time"]]} : () -> ()

// Terms in bf16 are summed in f32, as a matmul of the whole batch would.
func.func @half_precision(
    %x: !torch.vtensor<[8,16],bf16> {dist.sharding = #dist.sharding<@mesh, [["micro"], []], []>}) -> !torch.vtensor<[16,16],bf16> {
  // CHECK-LABEL: func.func @half_precision
  // CHECK: %1 = torch.aten.full {{.*}} -> !torch.vtensor<[16,16],f32>
  // CHECK: %9 = torch.aten.mm {{.*}} -> !torch.vtensor<[16,16],bf16>
  // CHECK-NEXT: %10 = torch.aten._to_copy %9, {{.*}} -> !torch.vtensor<[16,16],f32>
  // CHECK-NEXT: %11 = torch.aten.add.Tensor %arg1, %10, {{.*}} -> !torch.vtensor<[16,16],f32>
  // CHECK: %6 = torch.aten._to_copy %5, {{.*}} -> !torch.vtensor<[16,16],bf16>
  // CHECK-NEXT: return %6
  %0 = torch.aten.t %x : !torch.vtensor<[8,16],bf16> -> !torch.vtensor<[16,8],bf16>
  %1 = torch.aten.mm %0, %x : !torch.vtensor<[16,8],bf16>, !torch.vtensor<[8,16],bf16> -> !torch.vtensor<[16,16],bf16>
  return %1 : !torch.vtensor<[16,16],bf16>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 2, "time"]]} : () -> ()

// A sum over all rows in between takes two loops. A parameter that is stored in pieces (ZeRO-3) is gathered in both:
// kept from one to the other it would be whole, once for each iteration.
func.func @gathered_again(
    %x: !torch.vtensor<[8,16],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [["data", "micro"], []], []>},
    %w: !torch.vtensor<[16,16],f32> {dist.role = "param", dist.name = "w", dist.refine = [[1, "data", -1]]}) -> !torch.vtensor<[16],f32> {
  // CHECK-LABEL: func.func @gathered_again
  // CHECK: "dist.loop"
  // CHECK: "dist.all_gather"({{.*}}) {{.*}} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[16,16],f32>
  // CHECK: stack_dims = []
  // CHECK: "dist.loop"
  // CHECK: "dist.all_gather"({{.*}}) {{.*}} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[16,16],f32>
  // CHECK: stack_dims = []
  %int1 = torch.constant.int 1
  %dim = torch.constant.int 0
  %false = torch.constant.bool false
  %none = torch.constant.none
  %dims = torch.prim.ListConstruct %dim : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.mm %x, %w {dist.phase = "forward"} : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten.sum.dim_IntList %0, %dims, %false, %none {dist.phase = "forward"} : !torch.vtensor<[8,16],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[16],f32>
  %2 = torch.aten.sub.Tensor %x, %1, %int1 {dist.phase = "forward"} : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  %3 = torch.aten.mm %2, %w {dist.phase = "forward"} : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %4 = torch.aten.sum.dim_IntList %3, %dims, %false, %none {dist.phase = "forward"} : !torch.vtensor<[8,16],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[16],f32>
  return %4 : !torch.vtensor<[16],f32>
}
