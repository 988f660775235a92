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

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A product contracts what is cut, and says that its result is whole.
func.func @term_lost(%x: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["data"]], []>}, %w: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) {
  // expected-error@+1 {{result 0 of aten.mm is [{}, {}], but its rule ([a,b],[b,c])->([a,c]) reduce={b} makes [{}, {}] partial sum(data:(1)2)}}
  %0 = torch.aten.mm %x, %w {dist.shardings = [#dist.sharding<@mesh, [[], []], []>]} : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32> -> !torch.vtensor<[8,8],f32>
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A term goes into what is not linear.
func.func @term_in_relu(%x: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["data"]], []>}, %w: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) {
  %0 = torch.aten.mm %x, %w {dist.shardings = [#dist.sharding<@mesh, [[], []], [["sum", "data"]]>]} : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32> -> !torch.vtensor<[8,8],f32>
  // expected-error@+1 {{operand 0 of aten.relu is [{}, {}] partial sum(data:(1)2): the call is not linear in operands [0], reduce first}}
  %1 = torch.aten.relu %0 {dist.shardings = [#dist.sharding<@mesh, [[], []], [["sum", "data"]]>]} : !torch.vtensor<[8,8],f32> -> !torch.vtensor<[8,8],f32>
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A term and a whole value are added.
func.func @term_and_whole(%x: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["data"]], []>}, %w: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}, %b: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], []>}) {
  %int1 = torch.constant.int 1
  %0 = torch.aten.mm %x, %w {dist.shardings = [#dist.sharding<@mesh, [[], []], [["sum", "data"]]>]} : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32> -> !torch.vtensor<[8,8],f32>
  // expected-error@+1 {{the call is not linear in operands [0], reduce first}}
  %1 = torch.aten.add.Tensor %0, %b, %int1 {dist.shardings = [#dist.sharding<@mesh, [[], []], [["sum", "data"]]>]} : !torch.vtensor<[8,8],f32>, !torch.vtensor<[8,8],f32>, !torch.int -> !torch.vtensor<[8,8],f32>
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A dim that a softmax needs whole is cut.
func.func @whole_factor(%x: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["data"]], []>}) {
  %int1 = torch.constant.int 1
  %false = torch.constant.bool false
  // expected-error@+1 {{the cut of aten._softmax has factor n1 cut, which its rule ([n0,n1])->([n0,n1]) replicate={n1} keeps whole}}
  %0 = torch.aten._softmax %x, %int1, %false {dist.shardings = [#dist.sharding<@mesh, [[], ["data"]], []>]} : !torch.vtensor<[8,8],f32>, !torch.int, !torch.bool -> !torch.vtensor<[8,8],f32>
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A reshard makes another layout than it says.
func.func @two_layouts(%x: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["data"]], []>}) {
  // expected-error@+1 {{dist.reshard makes [{}, {}], but its result is [{data:(1)2}, {}]}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[], []], []>, dist.shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.vtensor<[8,8],f32>) -> !torch.vtensor<[8,8],f32>
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Nothing holds terms outside of the step.
// expected-error@unknown {{argument 0 is partial outside of the step}}
func.func @term_from_outside(%x: !torch.vtensor<[8,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], [["sum", "data"]]>}) {
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Odd dims are padded before.
// expected-error@unknown {{does not divide [7]}}
func.func @odd(%x: !torch.vtensor<[7],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) {
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A result lies otherwise than the step says.
// expected-error@unknown {{result 0 is [{data:(1)2}], but the step says [{}]}}
func.func @result_otherwise(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> (!torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [[]], []>}) {
  %0 = torch.aten.relu %x {dist.shardings = [#dist.sharding<@mesh, [["data"]], []>]} : !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}
