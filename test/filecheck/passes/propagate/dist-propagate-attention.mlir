// RUN: shardc-opt --split-input-file --dist-propagate %s | filecheck %s

// Through attention (`shardc::attention`, forward and backward). Tensors are [batch, heads, rows, depth].

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Grouped queries: 4 query heads share 2 key/value heads. A cut of the query heads is one of the key/value heads.
// CHECK-LABEL: func.func @heads
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], [], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], [], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], [], []], []>
func.func @heads(
    %q: !torch.vtensor<[2,4,8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], ["tensor"], [], []], []>},
    %k: !torch.vtensor<[2,2,8,16],f32>, %v: !torch.vtensor<[2,2,8,16],f32>) -> (!torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8],f32>) {
  %none = torch.constant.none
  %true = torch.constant.bool true
  %scale = torch.constant.float 2.500000e-01
  %int0 = torch.constant.int 0
  // CHECK: %0:2 = torch.operator "torch.shardc.attention"(%arg0, %arg1, %arg2, %none, %true, %float2.500000e-01, %int0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"], [], []], []>, #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], []], []>]}
  %0:2 = torch.operator "torch.shardc.attention"(%q, %k, %v, %none, %true, %scale, %int0) : (!torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,2,8,16],f32>, !torch.vtensor<[2,2,8,16],f32>, !torch.none, !torch.bool, !torch.float, !torch.int) -> (!torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8],f32>)
  return %0#0, %0#1 : !torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Query rows may be cut, and cut the output's rows. Keys stay whole: a softmax runs over them.
// CHECK-LABEL: func.func @rows
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], [], ["tensor"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], [], [], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], [], [], []], []>
func.func @rows(
    %q: !torch.vtensor<[2,4,8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], [], ["tensor"], []], []>},
    %k: !torch.vtensor<[2,4,8,16],f32>, %v: !torch.vtensor<[2,4,8,16],f32>) -> (!torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8],f32>) {
  %none = torch.constant.none
  %false = torch.constant.bool false
  %scale = torch.constant.float 2.500000e-01
  %int0 = torch.constant.int 0
  // CHECK: %0:2 = torch.operator "torch.shardc.attention"(%arg0, %arg1, %arg2, %none, %false, %float2.500000e-01, %int0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], [], ["tensor"], []], []>, #dist.sharding<@mesh, {{\[}}["data"], [], ["tensor"]], []>]}
  %0:2 = torch.operator "torch.shardc.attention"(%q, %k, %v, %none, %false, %scale, %int0) : (!torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8,16],f32>, !torch.none, !torch.bool, !torch.float, !torch.int) -> (!torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8],f32>)
  return %0#0, %0#1 : !torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// The backward call: the gradients are cut as what they are gradients of.
// CHECK-LABEL: func.func @backward
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], [], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], [], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], [], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], [], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], [], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], []], []>
func.func @backward(
    %g: !torch.vtensor<[2,4,8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], ["tensor"], [], []], []>},
    %q: !torch.vtensor<[2,4,8,16],f32>, %k: !torch.vtensor<[2,4,8,16],f32>, %v: !torch.vtensor<[2,4,8,16],f32>,
    %out: !torch.vtensor<[2,4,8,16],f32>, %lse: !torch.vtensor<[2,4,8],f32>) -> (!torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8,16],f32>) {
  %none = torch.constant.none
  %true = torch.constant.bool true
  %scale = torch.constant.float 2.500000e-01
  %int0 = torch.constant.int 0
  // CHECK: %0:3 = torch.operator "torch.shardc.attention_backward"(%arg0, %arg1, %arg2, %arg3, %none, %arg4, %arg5, %true, %float2.500000e-01, %int0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"], [], []], []>, #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], [], []], []>, #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], [], []], []>]}
  %0:3 = torch.operator "torch.shardc.attention_backward"(%g, %q, %k, %v, %none, %out, %lse, %true, %scale, %int0) : (!torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8,16],f32>, !torch.none, !torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8],f32>, !torch.bool, !torch.float, !torch.int) -> (!torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8,16],f32>)
  return %0#0, %0#1, %0#2 : !torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8,16],f32>, !torch.vtensor<[2,4,8,16],f32>
}
