// RUN: shardc-opt --split-input-file --pipeline dist-propagate,dist-insert-reshards %s | filecheck %s

// Reshards of one value to one layout are shared, and stand where memory is least: one that makes a value larger right
// before its first use, one that makes it smaller right after its producer.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A softmax and a running sum over dim 1 both need it whole: one gather, after the relu that does not.
func.func @one_gather(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["data"]], []>}) -> (!torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["data"]], []>}) {
  // CHECK-LABEL: func.func @one_gather
  // CHECK: %0 = torch.aten.relu %arg0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["data"]], []>]}
  // CHECK-NEXT: %1 = "dist.reshard"(%arg0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  // CHECK-NEXT: %2 = torch.aten._softmax %1, %int1, %false {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  // CHECK-NEXT: %3 = torch.aten.cumsum %1, %int1, %none {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  // CHECK-NEXT: return %2, %3, %0
  %none = torch.constant.none
  %false = torch.constant.bool false
  %int1 = torch.constant.int 1
  %0 = torch.aten.relu %x : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten._softmax %x, %int1, %false : !torch.vtensor<[8,16],f32>, !torch.int, !torch.bool -> !torch.vtensor<[8,16],f32>
  %2 = torch.aten.cumsum %x, %int1, %none : !torch.vtensor<[8,16],f32>, !torch.int, !torch.none -> !torch.vtensor<[8,16],f32>
  return %1, %2, %0 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// What forward gathered is kept for backward, unless it is a parameter's storage (see dist-insert-reshards-zero.mlir).
func.func @kept_for_backward(%x: !torch.vtensor<[8,16],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [[], ["data"]], []>}) -> (!torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>) {
  // CHECK-LABEL: func.func @kept_for_backward
  // CHECK: %0 = torch.aten.relu %arg0 {dist.phase = "forward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["data"]], []>]}
  // CHECK-NEXT: %1 = "dist.reshard"(%0) {dist.phase = "forward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  // CHECK-NEXT: %2 = torch.aten._softmax %1, %int1, %false {dist.phase = "forward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  // CHECK-NEXT: %3 = torch.aten.cumsum %1, %int1, %none {dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  // CHECK-NEXT: return %2, %3
  %none = torch.constant.none
  %false = torch.constant.bool false
  %int1 = torch.constant.int 1
  %0 = torch.aten.relu %x {dist.phase = "forward"} : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten._softmax %0, %int1, %false {dist.phase = "forward"} : !torch.vtensor<[8,16],f32>, !torch.int, !torch.bool -> !torch.vtensor<[8,16],f32>
  %2 = torch.aten.cumsum %0, %int1, %none {dist.phase = "backward"} : !torch.vtensor<[8,16],f32>, !torch.int, !torch.none -> !torch.vtensor<[8,16],f32>
  return %1, %2 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>
}
