// RUN: shardc-opt --split-input-file --pipeline dist-propagate,dist-insert-reshards,dist-partition %s | filecheck %s

// Calls on local shapes: most are the same op on smaller tensors; a rule may say otherwise.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Megatron's pair of cuts: the first weight by columns, the second by rows, one all-reduce at the end.
func.func @columns_then_rows(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>},
    %w1: !torch.vtensor<[16,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %w2: !torch.vtensor<[32,16],f32>) -> (!torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) {
  // CHECK-LABEL: func.func @columns_then_rows
  // CHECK-SAME: %arg0: !torch.vtensor<[4,16],f32>
  // CHECK-SAME: %arg1: !torch.vtensor<[16,16],f32>
  // CHECK-SAME: %arg2: !torch.vtensor<[16,16],f32>
  // CHECK: %0 = torch.aten.mm %arg0, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]} : !torch.vtensor<[4,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[4,16],f32>
  // CHECK-NEXT: %1 = torch.aten.relu %0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]} : !torch.vtensor<[4,16],f32> -> !torch.vtensor<[4,16],f32>
  // CHECK-NEXT: %2 = torch.aten.mm %1, %arg2 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], {{\[}}["sum", "tensor"]]>]} : !torch.vtensor<[4,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[4,16],f32>
  // CHECK-NEXT: %3 = "dist.all_reduce"(%2) {axes = ["tensor"], dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>], reduction = "sum"} : (!torch.vtensor<[4,16],f32>) -> !torch.vtensor<[4,16],f32>
  // CHECK-NEXT: return %3 : !torch.vtensor<[4,16],f32>
  %0 = torch.aten.mm %x, %w1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,32],f32> -> !torch.vtensor<[8,32],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[8,32],f32> -> !torch.vtensor<[8,32],f32>
  %2 = torch.aten.mm %1, %w2 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[32,16],f32> -> !torch.vtensor<[8,16],f32>
  return %2 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A bias is added to a sum of terms once: by the device whose offset in the contracted dim is 0.
func.func @bias_once(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %w: !torch.vtensor<[16,16],f32>, %bias: !torch.vtensor<[16],f32>) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @bias_once
  // CHECK-SAME: %arg0: !torch.vtensor<[8,8],f32>
  // CHECK-SAME: %arg1: !torch.vtensor<[8,16],f32>
  // CHECK-SAME: %arg2: !torch.vtensor<[16],f32>
  // CHECK: %0 = "dist.offset"() {axes = ["tensor"], base = 0 : i64, extent = 8 : i64, scale = 1 : i64} : () -> !torch.int
  // CHECK-NEXT: %1 = torch.aten.scalar_tensor %0, %int4, %none, %cpu, %none : !torch.int, !torch.int, !torch.none, !torch.Device, !torch.none -> !torch.vtensor<[],si64>
  // CHECK-NEXT: %2 = torch.aten.eq.Scalar %1, %int0 : !torch.vtensor<[],si64>, !torch.int -> !torch.vtensor<[],i1>
  // CHECK-NEXT: %3 = torch.aten.where.ScalarOther %2, %arg2, %int0 : !torch.vtensor<[],i1>, !torch.vtensor<[16],f32>, !torch.int -> !torch.vtensor<[16],f32>
  // CHECK-NEXT: %4 = torch.aten.addmm %3, %arg0, %arg1, %int1, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "tensor"]]>]} : !torch.vtensor<[16],f32>, !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,16],f32>, !torch.int, !torch.int -> !torch.vtensor<[8,16],f32>
  // CHECK-NEXT: %5 = "dist.all_reduce"(%4) {axes = ["tensor"], dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], reduction = "sum"} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  // CHECK-NEXT: return %5 : !torch.vtensor<[8,16],f32>
  %int1 = torch.constant.int 1
  %0 = torch.aten.addmm %bias, %x, %w, %int1, %int1 : !torch.vtensor<[16],f32>, !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32>, !torch.int, !torch.int -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A mean over a cut dim: each device's mean counts for its share of the whole, 1/2.
func.func @mean(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> !torch.vtensor<[16],f32> {
  // CHECK-LABEL: func.func @mean
  // CHECK-SAME: %arg0: !torch.vtensor<[4,16],f32>
  // CHECK: %1 = torch.aten.mean.dim %arg0, %0, %false, %none : !torch.vtensor<[4,16],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[16],f32>
  // CHECK-NEXT: %2 = torch.aten.mul.Scalar %1, %float5.000000e-01 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[]], {{\[}}["sum", "data"]]>]} : !torch.vtensor<[16],f32>, !torch.float -> !torch.vtensor<[16],f32>
  // CHECK-NEXT: %3 = "dist.all_reduce"(%2) {axes = ["data"], dist.shardings = [#dist.sharding<@mesh, {{\[}}[]], []>], reduction = "sum"} : (!torch.vtensor<[16],f32>) -> !torch.vtensor<[16],f32>
  // CHECK-NEXT: return %3 : !torch.vtensor<[16],f32>
  %none = torch.constant.none
  %false = torch.constant.bool false
  %int0 = torch.constant.int 0
  %dims = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.mean.dim %x, %dims, %false, %none : !torch.vtensor<[8,16],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[16],f32>
  return %0 : !torch.vtensor<[16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Causal attention on a block of the query rows: the mask starts where the rows do.
func.func @attention_rows(
    %q: !torch.vtensor<[2,4,8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], [], ["tensor"], []], []>},
    %k: !torch.vtensor<[2,4,8,16],f32>, %v: !torch.vtensor<[2,4,8,16],f32>) -> (!torch.vtensor<[2,4,8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], [], ["tensor"], []], []>}) {
  // CHECK-LABEL: func.func @attention_rows
  // CHECK-SAME: %arg0: !torch.vtensor<[1,4,4,16],f32>
  // CHECK-SAME: %arg1: !torch.vtensor<[1,4,8,16],f32>
  // CHECK-SAME: %arg2: !torch.vtensor<[1,4,8,16],f32>
  // CHECK: %0 = "dist.offset"() {axes = ["tensor"], base = 0 : i64, extent = 4 : i64, scale = 1 : i64} : () -> !torch.int
  // CHECK-NEXT: %1:2 = torch.operator "torch.shardc.attention"(%arg0, %arg1, %arg2, %none, %true, %float2.500000e-01, %0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], [], ["tensor"], []], []>, #dist.sharding<@mesh, {{\[}}["data"], [], ["tensor"]], []>]} : (!torch.vtensor<[1,4,4,16],f32>, !torch.vtensor<[1,4,8,16],f32>, !torch.vtensor<[1,4,8,16],f32>, !torch.none, !torch.bool, !torch.float, !torch.int) -> (!torch.vtensor<[1,4,4,16],f32>, !torch.vtensor<[1,4,4],f32>)
  // CHECK-NEXT: return %1#0 : !torch.vtensor<[1,4,4,16],f32>
  %none = torch.constant.none
  %true = torch.constant.bool true
  %scale = torch.constant.float 2.500000e-01
  %int0 = torch.constant.int 0
  %0:2 = torch.operator "torch.shardc.attention"(%q, %k, %v, %none, %true, %scale, %int0) : (!torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8,16],f32>, !torch.none, !torch.bool, !torch.float, !torch.int) -> (!torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8],f32>)
  return %0#0 : !torch.vtensor<[2,4,8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// An op without a rule runs on every device, on the gathered whole.
func.func @no_rule(%x: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> !torch.vtensor<[8,8],f32> {
  // CHECK-LABEL: func.func @no_rule
  // CHECK-SAME: %arg0: !torch.vtensor<[4,8],f32>
  // CHECK: %0 = "dist.all_gather"(%arg0) {axes = ["data"], dim = 0 : i64, dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[8,8],f32>
  // CHECK-NEXT: %1 = torch.operator "torch.aten.linalg_matrix_exp"(%0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]} : (!torch.vtensor<[8,8],f32>) -> !torch.vtensor<[8,8],f32>
  // CHECK-NEXT: return %1 : !torch.vtensor<[8,8],f32>
  %0 = torch.operator "torch.aten.linalg_matrix_exp"(%x) : (!torch.vtensor<[8,8],f32>) -> !torch.vtensor<[8,8],f32>
  return %0 : !torch.vtensor<[8,8],f32>
}
