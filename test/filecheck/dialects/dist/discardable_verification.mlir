// RUN: shardc-opt --split-input-file --verify-diagnostics %s

// Shardings that are discardable attributes, on ops and on a function's edge, are checked when a module is read.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()
// expected-error@+1 {{the sharding of argument 0 must be a #dist.sharding, not 3 : i64}}
func.func @step(%x: !torch.vtensor<[8],f32> {dist.sharding = 3 : i64}) -> !torch.vtensor<[8],f32> {
  return %x : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()
// expected-error@+1 {{the sharding of result 0: unknown reduction 'xor'}}
func.func @step(%x: !torch.vtensor<[8],f32>) -> (!torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [[]], [["xor", "data"]]>}) {
  return %x : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

func.func @not_a_sharding(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> !torch.vtensor<[8],f32> {
  // expected-error@+1 {{the sharding of result 0 must be a #dist.sharding}}
  %0 = torch.aten.relu %x {dist.shardings = ["data"]} : !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

func.func @too_many_dims(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> !torch.vtensor<[8],f32> {
  // expected-error@+1 {{the sharding of result 0: too many dims: the sharding has 2, the tensor has 1}}
  %0 = torch.aten.relu %x {dist.shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// MLIR's verifiers do not see into attributes: an axis that appears twice is found here.
func.func @axis_twice(%x: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> !torch.vtensor<[8,8],f32> {
  // expected-error@+1 {{the sharding of result 0: axis 'data' appears twice: in dim 0 and in dim 1}}
  %0 = torch.aten.relu %x {dist.shardings = [#dist.sharding<@mesh, [["data"], ["data"]], []>]} : !torch.vtensor<[8,8],f32> -> !torch.vtensor<[8,8],f32>
  return %0 : !torch.vtensor<[8,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

func.func @unknown_axis(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> !torch.vtensor<[8],f32> {
  // expected-error@+1 {{the sharding of result 0: unknown axis 'rows'; the mesh has 'data', 'tensor'}}
  %0 = torch.aten.relu %x {dist.shardings = [#dist.sharding<@mesh, [["rows"]], []>]} : !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// What a kernel makes beside its results has no layout that anyone says; any other op says each.
func.func @unit_of_a_call(%x: !torch.vtensor<[8],f32>) -> !torch.vtensor<[8],f32> {
  %0 = torch.prim.TupleConstruct %x, %x : !torch.vtensor<[8],f32>, !torch.vtensor<[8],f32> -> !torch.tuple<vtensor<[8],f32>, vtensor<[8],f32>>
  %1:2 = torch.prim.TupleUnpack %0 {dist.shardings = [#dist.sharding<@mesh, [[]], []>, unit]} : !torch.tuple<vtensor<[8],f32>, vtensor<[8],f32>> -> !torch.vtensor<[8],f32>, !torch.vtensor<[8],f32>
  // expected-error@+1 {{the sharding of result 0 must be a #dist.sharding, not unit}}
  %2 = torch.aten.relu %1#0 {dist.shardings = [unit]} : !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  return %2 : !torch.vtensor<[8],f32>
}

// -----

func.func @phase(%x: !torch.vtensor<[8],f32>) -> !torch.vtensor<[8],f32> {
  // expected-error@+1 {{dist.phase is [], not a string}}
  %0 = torch.aten.relu %x {dist.phase = []} : !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}
