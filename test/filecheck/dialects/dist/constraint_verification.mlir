// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.constraint' op must give !torch.vtensor<[4,8],f32>, not !torch.vtensor<[2,8],f32>: a constraint does not change its operand}}
  %0 = "dist.constraint"(%x) {sharding = #dist.sharding<@mesh, [["data"], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[2,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.constraint' op can't have partial terms: a constraint is the layout of a whole value}}
  %0 = "dist.constraint"(%x) {sharding = #dist.sharding<@mesh, [["data"], []], [["sum", "tensor"]]>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.constraint' op sharding: unknown axis 'dat'}}
  %0 = "dist.constraint"(%x) {sharding = #dist.sharding<@mesh, [["dat"], ["?"]], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.constraint' op attribute "sharding" is expected but not provided}}
  %0 = "dist.constraint"(%x) {} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}
