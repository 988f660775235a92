// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.partial' op unknown axis 'tensr'; the mesh has 'data', 'tensor', 'micro'; did you mean 'tensor'?}}
  %0 = "dist.partial"(%x) {axes = ["tensr"]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.partial' op axis 'tensor' appears twice}}
  %0 = "dist.partial"(%x) {axes = ["tensor", "tensor"]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.partial' op axes tensor:(1)4 and tensor:(2)2 overlap}}
  %0 = "dist.partial"(%x) {axes = [#dist.axis<"tensor", 1, 4>, #dist.axis<"tensor", 2, 2>]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.partial' op no axes are given; at least one is needed}}
  %0 = "dist.partial"(%x) {axes = []} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.partial' op an axis is "name" or #dist.axis<"name", pre, size>, not 4}}
  %0 = "dist.partial"(%x) {axes = [4]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.partial' op needs a dist.mesh in the module around it}}
  %0 = "dist.partial"(%x) {axes = ["tensor"]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.partial' op must give !torch.vtensor<[4,8],f32>, not !torch.vtensor<[2,8],f32>: a term of a sum has the sum's shape}}
  %0 = "dist.partial"(%x) {axes = ["data"]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[2,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.partial' op attribute "axes" is expected but not provided}}
  %0 = "dist.partial"(%x) {} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}
