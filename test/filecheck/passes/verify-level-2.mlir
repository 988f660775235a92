// RUN: shardc-opt --split-input-file --verify-diagnostics --verify-level=level=2 %s | filecheck %s

// Level 2: a mesh, a sharding on every value, and every call's tensors cut by one assignment of its rule's factors.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// CHECK-LABEL: func.func @step
func.func @step(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> !torch.vtensor<[8],f32> {
  %0 = torch.aten.relu %x {dist.shardings = [#dist.sharding<@mesh, [["data"]], []>]} : !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

// expected-error@unknown {{the module is not at level 2: the module has no dist.mesh}}
func.func @no_mesh() {
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// expected-error@unknown {{argument x has no #dist.sharding}}
func.func @argument_without(%x: !torch.vtensor<[8],f32> {dist.role = "input", dist.name = "x"}) {
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

func.func @result_without(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> !torch.vtensor<[8],f32> {
  // expected-error@+1 {{aten.relu has 0 shardings for 1 results}}
  %0 = torch.aten.relu %x : !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A reshard is missing: the rule of relu wants one cut for its operand and its result.
func.func @operand_cut_otherwise(%x: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> !torch.vtensor<[8,8],f32> {
  // expected-error@+1 {{which does not fit its rule ([a,b])->([a,b])}}
  %0 = torch.aten.relu %x {dist.shardings = [#dist.sharding<@mesh, [["tensor"], []], []>]} : !torch.vtensor<[8,8],f32> -> !torch.vtensor<[8,8],f32>
  return %0 : !torch.vtensor<[8,8],f32>
}
