// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.permute' op can't cut dim 0 into 1 blocks: source has 2}}
  %0 = "dist.permute"(%x) {source = #dist.sharding<@mesh, [["data"], []], []>, target = #dist.sharding<@mesh, [[], ["data"]], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.permute' op can't make {'sum': 4} partial terms of no}}
  %0 = "dist.permute"(%x) {source = #dist.sharding<@mesh, [["data"], []], []>, target = #dist.sharding<@mesh, [["data"], []], [["sum", "tensor"]]>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.permute' op source: works over devices, but 'micro' is a time axis}}
  %0 = "dist.permute"(%x) {source = #dist.sharding<@mesh, [["micro"], []], []>, target = #dist.sharding<@mesh, [["tensor"], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.permute' op source: too few dims: the sharding has 1, the tensor has 2}}
  %0 = "dist.permute"(%x) {source = #dist.sharding<@mesh, [["data"]], []>, target = #dist.sharding<@mesh, [["data"], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.permute' op target: unknown axis 'dat'}}
  %0 = "dist.permute"(%x) {source = #dist.sharding<@mesh, [["data"], []], []>, target = #dist.sharding<@mesh, [["dat"], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.permute' op source: open dims}}
  %0 = "dist.permute"(%x) {source = #dist.sharding<@mesh, [["data", "?"], []], []>, target = #dist.sharding<@mesh, [["data"], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.permute' op must give !torch.vtensor<[4,8],f32>, not !torch.vtensor<[2,8],f32>: a permute keeps the local shape}}
  %0 = "dist.permute"(%x) {source = #dist.sharding<@mesh, [["data", "tensor"], []], []>, target = #dist.sharding<@mesh, [["tensor", "data"], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[2,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.permute' op attribute "target" is expected but not provided}}
  %0 = "dist.permute"(%x) {source = #dist.sharding<@mesh, [[], []], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}
