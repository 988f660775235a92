// RUN: shardc-opt --split-input-file --dist-partition %s | filecheck %s

// Each dist.reshard becomes the cheapest chain of collectives, each value gets its local shape.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A sum that everybody needs.
func.func @all_reduce(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], [["sum", "data"]]>}) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @all_reduce
  // CHECK-SAME: %arg0: !torch.vtensor<[8,16],f32>
  // CHECK: %0 = "dist.all_reduce"(%arg0) {axes = ["data"], dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], reduction = "sum"} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  // CHECK-NEXT: return %0 : !torch.vtensor<[8,16],f32>
  %0 = "dist.reshard"(%x) {dist.shardings = [#dist.sharding<@mesh, [[], []], []>], sharding = #dist.sharding<@mesh, [[], []], []>} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A sum of which everybody needs a piece.
func.func @reduce_scatter(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], [["sum", "data"]]>}) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @reduce_scatter
  // CHECK-SAME: %arg0: !torch.vtensor<[8,16],f32>
  // CHECK: %0 = "dist.reduce_scatter"(%arg0) {axes = ["data"], dim = 0 : i64, dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>], reduction = "sum"} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[4,16],f32>
  // CHECK-NEXT: return %0 : !torch.vtensor<[4,16],f32>
  %0 = "dist.reshard"(%x) {dist.shardings = [#dist.sharding<@mesh, [["data"], []], []>], sharding = #dist.sharding<@mesh, [["data"], []], []>} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Pieces to the whole.
func.func @all_gather(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @all_gather
  // CHECK-SAME: %arg0: !torch.vtensor<[4,16],f32>
  // CHECK: %0 = "dist.all_gather"(%arg0) {axes = ["data"], dim = 0 : i64, dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]} : (!torch.vtensor<[4,16],f32>) -> !torch.vtensor<[8,16],f32>
  // CHECK-NEXT: return %0 : !torch.vtensor<[8,16],f32>
  %0 = "dist.reshard"(%x) {dist.shardings = [#dist.sharding<@mesh, [[], []], []>], sharding = #dist.sharding<@mesh, [[], []], []>} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// The whole to pieces costs nothing.
func.func @slice(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], []>}) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @slice
  // CHECK-SAME: %arg0: !torch.vtensor<[8,16],f32>
  // CHECK: %0 = "dist.slice"(%arg0) {axes = ["tensor"], dim = 1 : i64, dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["tensor"]], []>]} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,8],f32>
  // CHECK-NEXT: return %0 : !torch.vtensor<[8,8],f32>
  %0 = "dist.reshard"(%x) {dist.shardings = [#dist.sharding<@mesh, [[], ["tensor"]], []>], sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Rows to columns.
func.func @all_to_all(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @all_to_all
  // CHECK-SAME: %arg0: !torch.vtensor<[4,16],f32>
  // CHECK: %0 = "dist.all_to_all"(%arg0) {axes = ["data"], concat_dim = 0 : i64, dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["data"]], []>], split_dim = 1 : i64} : (!torch.vtensor<[4,16],f32>) -> !torch.vtensor<[8,8],f32>
  // CHECK-NEXT: return %0 : !torch.vtensor<[8,8],f32>
  %0 = "dist.reshard"(%x) {dist.shardings = [#dist.sharding<@mesh, [[], ["data"]], []>], sharding = #dist.sharding<@mesh, [[], ["data"]], []>} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A sum over one axis, in pieces over the other: the scatter first, so that less is summed.
func.func @two_steps(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], [["sum", "data", "tensor"]]>}) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @two_steps
  // CHECK-SAME: %arg0: !torch.vtensor<[8,16],f32>
  // CHECK: %0 = "dist.reduce_scatter"(%arg0) {axes = ["data"], dim = 0 : i64, dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], {{\[}}["sum", "tensor"]]>], reduction = "sum"} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[4,16],f32>
  // CHECK-NEXT: %1 = "dist.all_reduce"(%0) {axes = ["tensor"], dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>], reduction = "sum"} : (!torch.vtensor<[4,16],f32>) -> !torch.vtensor<[4,16],f32>
  // CHECK-NEXT: return %1 : !torch.vtensor<[4,16],f32>
  %0 = "dist.reshard"(%x) {dist.shardings = [#dist.sharding<@mesh, [["data"], []], []>], sharding = #dist.sharding<@mesh, [["data"], []], []>} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Other reductions work the same.
func.func @maximum(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], [["max", "data"]]>}) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @maximum
  // CHECK-SAME: %arg0: !torch.vtensor<[8,16],f32>
  // CHECK: %0 = "dist.all_reduce"(%arg0) {axes = ["data"], dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], reduction = "max"} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  // CHECK-NEXT: return %0 : !torch.vtensor<[8,16],f32>
  %0 = "dist.reshard"(%x) {dist.shardings = [#dist.sharding<@mesh, [[], []], []>], sharding = #dist.sharding<@mesh, [[], []], []>} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// The same pieces on other devices.
func.func @permute(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @permute
  // CHECK-SAME: %arg0: !torch.vtensor<[4,16],f32>
  // CHECK: %0 = "dist.permute"(%arg0) {dist.shardings = [#dist.sharding<@mesh, {{\[}}["tensor"], []], []>], source = #dist.sharding<@mesh, {{\[}}["data"], []], []>, target = #dist.sharding<@mesh, {{\[}}["tensor"], []], []>} : (!torch.vtensor<[4,16],f32>) -> !torch.vtensor<[4,16],f32>
  // CHECK-NEXT: return %0 : !torch.vtensor<[4,16],f32>
  %0 = "dist.reshard"(%x) {dist.shardings = [#dist.sharding<@mesh, [["tensor"], []], []>], sharding = #dist.sharding<@mesh, [["tensor"], []], []>} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Equal layouts: nothing to do.
func.func @nothing(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @nothing
  // CHECK-SAME: %arg0: !torch.vtensor<[4,16],f32>
  // CHECK: return %arg0 : !torch.vtensor<[4,16],f32>
  %0 = "dist.reshard"(%x) {dist.shardings = [#dist.sharding<@mesh, [["data"], []], []>], sharding = #dist.sharding<@mesh, [["data"], []], []>} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A whole value as a sum: one device has it, the others have zeros.
func.func @to_terms(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], []>}) -> (!torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], [["sum", "data"]]>}) {
  // CHECK-LABEL: func.func @to_terms
  // CHECK: %0 = "dist.partial"(%arg0) {axes = ["data"], dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "data"]]>]} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  // CHECK-NEXT: return %0 : !torch.vtensor<[8,16],f32>
  %0 = "dist.reshard"(%x) {dist.shardings = [#dist.sharding<@mesh, [[], []], [["sum", "data"]]>], sharding = #dist.sharding<@mesh, [[], []], [["sum", "data"]]>} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A whole value as a maximum: it is its own on all devices.
func.func @to_equal_terms(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], []>}) -> (!torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], [["max", "data"]]>}) {
  // CHECK-LABEL: func.func @to_equal_terms
  // CHECK: return %arg0 : !torch.vtensor<[8,16],f32>
  %0 = "dist.reshard"(%x) {dist.shardings = [#dist.sharding<@mesh, [[], []], [["max", "data"]]>], sharding = #dist.sharding<@mesh, [[], []], [["max", "data"]]>} : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}
