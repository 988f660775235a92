// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: unknown axis 'tensr'; the mesh has 'data', 'tensor', 'micro'; did you mean 'tensor'?}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[#dist.axis<"tensr", 1, 2>], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: sub-axis tensor:(2)4 does not fit: axis 'tensor' has 4 ways, which 2 * 4 must divide}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[#dist.axis<"tensor", 2, 4>], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: sub-axis tensor:(1)3 does not fit: axis 'tensor' has 4 ways, which 1 * 3 must divide}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[#dist.axis<"tensor", 1, 3>], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: sub-axis tensor:(0)2 does not fit}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[#dist.axis<"tensor", 0, 2>], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: axis 'tensor' appears twice: in dim 0 and in dim 1}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[#dist.axis<"tensor", 1, 2>], [#dist.axis<"tensor", 1, 2>]], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: axes tensor:(1)4 and tensor:(1)2 overlap: in dim 0 and in dim 1}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["tensor"], [#dist.axis<"tensor", 1, 2>]], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{expected 3 type arguments, but had 2}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[#dist.axis<"tensor", 1>], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{expected base attribute 'builtin.integer' but got 'builtin.string'}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[#dist.axis<"tensor", 1, "two">], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}
