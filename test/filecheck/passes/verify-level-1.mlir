// RUN: shardc-opt --split-input-file --verify-diagnostics --verify-level=level=1 %s | filecheck %s

// Level 1: one function of torch ops (and constraints), every argument with a role and a name.

// CHECK-LABEL: func.func @step
func.func @step(%x: !torch.vtensor<[8],f32> {dist.role = "input", dist.name = "x"}) -> !torch.vtensor<[8],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.aten.add.Scalar %x, %int1, %int1 : !torch.vtensor<[8],f32>, !torch.int, !torch.int -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

// expected-error@unknown {{the module is not at level 1: the module has no function}}

// -----

// expected-error@unknown {{argument 1 has no dist.role and dist.name}}
func.func @no_role(
    %x: !torch.vtensor<[8],f32> {dist.role = "input", dist.name = "x"},
    %y: !torch.vtensor<[8],f32> {dist.role = "input"}) {
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

func.func @communicates(%x: !torch.vtensor<[8],f32> {dist.role = "input", dist.name = "x"}) -> !torch.vtensor<[8],f32> {
  // expected-error@+1 {{dist.all_reduce is not an op of level 1}}
  %0 = "dist.all_reduce"(%x) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[8],f32>) -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}
