// RUN: shardc-opt --split-input-file --pipeline dist-propagate,dist-insert-reshards %s | filecheck %s

// Partial sums. A matmul whose contracted dim is cut leaves each device with terms of a sum. They stay so through calls
// that are linear in them, and are combined once, where somebody needs the sum.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Three row-parallel products are added, as the gradients of three projections of one value are: one reshard, after
// the last addition and a view.
func.func @added_first(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %a: !torch.vtensor<[16,16],f32>, %b: !torch.vtensor<[16,16],f32>, %c: !torch.vtensor<[16,16],f32>) -> !torch.vtensor<[2,4,16],f32> {
  // CHECK-LABEL: func.func @added_first
  // CHECK: %1 = torch.aten.mm %arg0, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "tensor"]]>]}
  // CHECK-NEXT: %2 = torch.aten.mm %arg0, %arg2 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "tensor"]]>]}
  // CHECK-NEXT: %3 = torch.aten.mm %arg0, %arg3 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "tensor"]]>]}
  // CHECK-NEXT: %4 = torch.aten.add.Tensor %1, %2, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "tensor"]]>]}
  // CHECK-NEXT: %5 = torch.aten.add.Tensor %4, %3, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "tensor"]]>]}
  // CHECK-NEXT: %6 = torch.aten.view %5, %0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], [], []], {{\[}}["sum", "tensor"]]>]}
  // CHECK-NEXT: %7 = "dist.reshard"(%6) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], [], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], [], []], []>}
  // CHECK-NEXT: %8 = torch.aten.relu %7 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], [], []], []>]}
  // CHECK-NEXT: return %8
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %int4 = torch.constant.int 4
  %int16 = torch.constant.int 16
  %shape = torch.prim.ListConstruct %int2, %int4, %int16 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.mm %x, %a : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten.mm %x, %b : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %2 = torch.aten.mm %x, %c : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %3 = torch.aten.add.Tensor %0, %1, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  %4 = torch.aten.add.Tensor %3, %2, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  %5 = torch.aten.view %4, %shape : !torch.vtensor<[8,16],f32>, !torch.list<int> -> !torch.vtensor<[2,4,16],f32>
  %6 = torch.aten.relu %5 : !torch.vtensor<[2,4,16],f32> -> !torch.vtensor<[2,4,16],f32>
  return %6 : !torch.vtensor<[2,4,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A residual is whole on every device, so it can't be added to terms (it would be counted twice): sum first.
func.func @whole_operand(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %a: !torch.vtensor<[16,16],f32>,
    %residual: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], []>}) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @whole_operand
  // CHECK: %0 = torch.aten.mm %arg0, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "tensor"]]>]}
  // CHECK-NEXT: %1 = "dist.reshard"(%0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  // CHECK-NEXT: %2 = torch.aten.add.Tensor %1, %arg2, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  // CHECK-NEXT: return %2
  %int1 = torch.constant.int 1
  %0 = torch.aten.mm %x, %a : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten.add.Tensor %0, %residual, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  return %1 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Two readers: the sum is made once, where it is made, for both. Carried on through one of them it would be made twice.
func.func @two_readers(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %a: !torch.vtensor<[16,16],f32>) -> (!torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>) {
  // CHECK-LABEL: func.func @two_readers
  // CHECK: %0 = torch.aten.mm %arg0, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "tensor"]]>]}
  // CHECK-NEXT: %1 = "dist.reshard"(%0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  // CHECK-NEXT: %2 = torch.aten.neg %1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  // CHECK-NEXT: %3 = torch.aten.relu %1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  // CHECK-NEXT: return %2, %3
  %0 = torch.aten.mm %x, %a : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  %2 = torch.aten.relu %0 : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  return %1, %2 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Where the sum is needed in pieces (the sequence dim over the axis that the terms are over), terms still meet in the
// addition first: one reshard from partial to cut, which partition makes a reduce-scatter.
func.func @needed_in_pieces(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %a: !torch.vtensor<[16,16],f32>, %b: !torch.vtensor<[16,16],f32>,
    %residual: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["tensor"], []], []>}) -> (!torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["tensor"], []], []>}) {
  // CHECK-LABEL: func.func @needed_in_pieces
  // CHECK: %0 = torch.aten.mm %arg0, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "tensor"]]>]}
  // CHECK-NEXT: %1 = torch.aten.mm %arg0, %arg2 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "tensor"]]>]}
  // CHECK-NEXT: %2 = torch.aten.add.Tensor %0, %1, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "tensor"]]>]}
  // CHECK-NEXT: %3 = "dist.reshard"(%2) {dist.shardings = [#dist.sharding<@mesh, {{\[}}["tensor"], []], []>], sharding = #dist.sharding<@mesh, {{\[}}["tensor"], []], []>}
  // CHECK-NEXT: %4 = torch.aten.add.Tensor %3, %arg3, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["tensor"], []], []>]}
  // CHECK-NEXT: return %4
  %int1 = torch.constant.int 1
  %0 = torch.aten.mm %x, %a : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten.mm %x, %b : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %2 = torch.aten.add.Tensor %0, %1, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  %3 = torch.aten.add.Tensor %2, %residual, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  return %3 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A call with several results, linear as it is: one sum before it costs less than one of each result after it.
func.func @several_results(
    %g: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %w: !torch.vtensor<[16,16],f32>, %x: !torch.vtensor<[8,16],f32>, %mean: !torch.vtensor<[8,1],f32>, %rstd: !torch.vtensor<[8,1],f32>,
    %scale: !torch.vtensor<[16],f32>, %bias: !torch.vtensor<[16],f32>) -> (!torch.vtensor<[8,16],f32>, !torch.vtensor<[16],f32>, !torch.vtensor<[16],f32>) {
  // CHECK-LABEL: func.func @several_results
  // CHECK: %2 = torch.aten.mm %arg0, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "tensor"]]>]}
  // CHECK-NEXT: %3 = "dist.reshard"(%2) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  // CHECK-NEXT: %result0, %result1, %result2 = torch.aten.native_layer_norm_backward %3, %arg2, %0, %arg3, %arg4, %arg5, %arg6, %1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>, #dist.sharding<@mesh, {{\[}}[]], []>, #dist.sharding<@mesh, {{\[}}[]], []>]}
  // CHECK-NEXT: return %result0, %result1, %result2
  %true = torch.constant.bool true
  %int16 = torch.constant.int 16
  %shape = torch.prim.ListConstruct %int16 : (!torch.int) -> !torch.list<int>
  %all = torch.prim.ListConstruct %true, %true, %true : (!torch.bool, !torch.bool, !torch.bool) -> !torch.list<bool>
  %0 = torch.aten.mm %g, %w : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %1:3 = torch.aten.native_layer_norm_backward %0, %x, %shape, %mean, %rstd, %scale, %bias, %all : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.list<int>, !torch.vtensor<[8,1],f32>, !torch.vtensor<[8,1],f32>, !torch.vtensor<[16],f32>, !torch.vtensor<[16],f32>, !torch.list<bool> -> !torch.vtensor<[8,16],f32>, !torch.vtensor<[16],f32>, !torch.vtensor<[16],f32>
  return %1#0, %1#1, %1#2 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16],f32>, !torch.vtensor<[16],f32>
}
