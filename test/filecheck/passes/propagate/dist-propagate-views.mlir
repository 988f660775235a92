// RUN: shardc-opt --split-input-file --dist-propagate %s | filecheck %s

// Through views, whose rules are derived from their shapes.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A cut of the hidden dim is a cut of the heads: 32 is 4 heads of 8. It passes the transpose and comes back.
// CHECK-LABEL: func.func @heads
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], [], ["tensor"]], []>
func.func @heads(%x: !torch.vtensor<[2,16,32],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], [], ["tensor"]], []>}) -> !torch.vtensor<[2,16,32],f32> {
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %int4 = torch.constant.int 4
  %int8 = torch.constant.int 8
  %int16 = torch.constant.int 16
  %int32 = torch.constant.int 32
  %split = torch.prim.ListConstruct %int2, %int16, %int4, %int8 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %joined = torch.prim.ListConstruct %int2, %int16, %int32 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  // CHECK: %2 = torch.aten.view %arg0, %0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], [], ["tensor"], []], []>]}
  %0 = torch.aten.view %x, %split : !torch.vtensor<[2,16,32],f32>, !torch.list<int> -> !torch.vtensor<[2,16,4,8],f32>
  // CHECK: %3 = torch.aten.transpose.int %2, %int1, %int2 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"], [], []], []>]}
  %1 = torch.aten.transpose.int %0, %int1, %int2 : !torch.vtensor<[2,16,4,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,4,16,8],f32>
  // CHECK: %4 = torch.aten.transpose.int %3, %int1, %int2 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], [], ["tensor"], []], []>]}
  %2 = torch.aten.transpose.int %1, %int1, %int2 : !torch.vtensor<[2,4,16,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,16,4,8],f32>
  // CHECK: %5 = torch.aten.view %4, %1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], [], ["tensor"]], []>]}
  %3 = torch.aten.view %2, %joined : !torch.vtensor<[2,16,4,8],f32>, !torch.list<int> -> !torch.vtensor<[2,16,32],f32>
  return %3 : !torch.vtensor<[2,16,32],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Batch and sequence flattened: blocks of the flat dim can say a cut of the batch, but a cut of the sequence only if
// the batch is cut into single rows first.
// CHECK-LABEL: func.func @flattened
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], [], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}[], ["tensor"], []], []>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"], []], []>
func.func @flattened(
    %x: !torch.vtensor<[4,8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], [], []], []>},
    %y: !torch.vtensor<[4,8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"], []], []>},
    %z: !torch.vtensor<[2,8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], ["tensor"], []], []>}) -> (!torch.vtensor<[32,16],f32>, !torch.vtensor<[32,16],f32>, !torch.vtensor<[16,16],f32>) {
  %int16 = torch.constant.int 16
  %int32 = torch.constant.int 32
  %flat = torch.prim.ListConstruct %int32, %int16 : (!torch.int, !torch.int) -> !torch.list<int>
  %flat_z = torch.prim.ListConstruct %int16, %int16 : (!torch.int, !torch.int) -> !torch.list<int>
  // CHECK: %2 = torch.aten.view %arg0, %0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  %0 = torch.aten.view %x, %flat : !torch.vtensor<[4,8,16],f32>, !torch.list<int> -> !torch.vtensor<[32,16],f32>
  // CHECK: %3 = torch.aten.view %arg1, %0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  %1 = torch.aten.view %y, %flat : !torch.vtensor<[4,8,16],f32>, !torch.list<int> -> !torch.vtensor<[32,16],f32>
  // CHECK: %4 = torch.aten.view %arg2, %1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data", "tensor"], []], []>]}
  %2 = torch.aten.view %z, %flat_z : !torch.vtensor<[2,8,16],f32>, !torch.list<int> -> !torch.vtensor<[16,16],f32>
  return %0, %1, %2 : !torch.vtensor<[32,16],f32>, !torch.vtensor<[32,16],f32>, !torch.vtensor<[16,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Parts of a dim: half of it stays whole, all of it passes. Joined dims stay whole, the others pass.
// CHECK-LABEL: func.func @parts
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>
func.func @parts(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], ["tensor"]], []>}) -> (!torch.vtensor<[8,8],f32>, !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,32],f32>) {
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %int8 = torch.constant.int 8
  %int16 = torch.constant.int 16
  // CHECK: %0 = torch.aten.slice.Tensor %arg0, %int1, %int0, %int8, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  %0 = torch.aten.slice.Tensor %x, %int1, %int0, %int8, %int1 : !torch.vtensor<[8,16],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[8,8],f32>
  // CHECK: %1 = torch.aten.slice.Tensor %arg0, %int1, %int0, %int16, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>]}
  %1 = torch.aten.slice.Tensor %x, %int1, %int0, %int16, %int1 : !torch.vtensor<[8,16],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[8,16],f32>
  %both = torch.prim.ListConstruct %x, %x : (!torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>) -> !torch.list<vtensor>
  // CHECK: %3 = torch.aten.cat %2, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  %2 = torch.aten.cat %both, %int1 : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[8,32],f32>
  return %0, %1, %2 : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,32],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// 6 rows of 2 seen as 4 rows of 3: no blocks of one are blocks of the other beyond what 6 and 4 have in common, 2.
// CHECK-LABEL: func.func @common_factor
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], ["tensor"]], []>
func.func @common_factor(%x: !torch.vtensor<[6,2],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], ["tensor"]], []>}) -> !torch.vtensor<[4,3],f32> {
  %int3 = torch.constant.int 3
  %int4 = torch.constant.int 4
  %shape = torch.prim.ListConstruct %int4, %int3 : (!torch.int, !torch.int) -> !torch.list<int>
  // CHECK: %1 = torch.aten.view %arg0, %0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  %0 = torch.aten.view %x, %shape : !torch.vtensor<[6,2],f32>, !torch.list<int> -> !torch.vtensor<[4,3],f32>
  return %0 : !torch.vtensor<[4,3],f32>
}
