// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op must give !torch.vtensor<[4,8],f32>, not !torch.vtensor<[2,8],f32>: a reshard moves a value's blocks and does not change its type}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data"], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[2,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: open dims ("?") are for dist.constraint; here every dim must be closed}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data"], ["?"]], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op sharding: needs a dist.mesh in the module around it}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [["data"], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.reshard' op attribute "sharding" is expected but not provided}}
  %0 = "dist.reshard"(%x) {} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{expected base attribute 'dist.sharding' but got 'builtin.string'}}
  %0 = "dist.reshard"(%x) {sharding = "data"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.int) {
  // expected-error@+1 {{'dist.reshard' op operand 0 must be a value tensor with static shape, such as !torch.vtensor<[4,8],f32>, not !torch.int}}
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [], []>} : (!torch.int) -> !torch.int
  return
}
