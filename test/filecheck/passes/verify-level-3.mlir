// RUN: shardc-opt --split-input-file --verify-diagnostics --verify-level=level=3 %s | filecheck %s

// Level 3: one rank's program. No reshards or constraints are left; every argument and result says how it lies.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// CHECK-LABEL: func.func @step
func.func @step(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> (!torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [[]], []>}) {
  %0 = "dist.all_reduce"(%x) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[8],f32>) -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// expected-error@unknown {{argument 0 has no dist.sharding}}
func.func @argument_without(%x: !torch.vtensor<[8],f32>) {
  return
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

func.func @left_over(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> (!torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [[]], []>}) {
  // expected-error@+1 {{dist.reshard is left over}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[]], []>} : (!torch.vtensor<[8],f32>) -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// expected-error@unknown {{result 0 has no dist.sharding}}
func.func @result_without(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> !torch.vtensor<[8],f32> {
  return %x : !torch.vtensor<[8],f32>
}
