// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: unknown axis 'tensr'; the mesh has 'data', 'tensor', 'micro'; did you mean 'tensor'?}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data"], ["tensr"]], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: axis 'data' appears twice: in dim 0 and in dim 1}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data"], ["data"]], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: axis 'data' appears twice: in dim 0 and in dim 0}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data", "data"], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: axis 'data' appears twice: in dim 0 and in partial sum}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data"], []], [["sum", "data"]]>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: too many dims: the sharding has 3, the tensor has 2}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data"], [], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: too few dims: the sharding has 1, the tensor has 2; a whole dim is []}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data"]], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: dim 0 must be a list of axes, not "data"}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, ["data", []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: "?" must be the last of its dim}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["?", "data"], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: unknown reduction 'mean'; there are 'sum', 'max', 'min'}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data"], []], [["mean", "tensor"]]>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: a partial term is ["reduction", axes...], not ["sum"]}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data"], []], [["sum"]]>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: a partial term is ["reduction", axes...], not "tensor"}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data"], []], ["tensor"]>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: partial in max and sum at once: the order of two reductions would matter}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[], []], [["sum", "data"], ["max", "tensor"]]>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: there is no mesh @cluster; the module's is @mesh}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@cluster, [["data"], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{expected 3 type arguments, but had 2}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data"], []]>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{expected base attribute 'builtin.array' but got 'builtin.integer'}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data"], []], 1 : i32>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}
