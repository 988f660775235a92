// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.slice' op unknown axis 'tensr'; the mesh has 'data', 'tensor', 'micro'; did you mean 'tensor'?}}
  %0 = "dist.slice"(%x) {axes = ["tensr"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.slice' op axis 'tensor' appears twice}}
  %0 = "dist.slice"(%x) {axes = ["tensor", "tensor"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.slice' op axes tensor:(1)4 and tensor:(2)2 overlap}}
  %0 = "dist.slice"(%x) {axes = [#dist.axis<"tensor", 1, 4>, #dist.axis<"tensor", 2, 2>], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.slice' op no axes are given; at least one is needed}}
  %0 = "dist.slice"(%x) {axes = [], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.slice' op an axis is "name" or #dist.axis<"name", pre, size>, not 4}}
  %0 = "dist.slice"(%x) {axes = [4], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
  return
}

// -----

func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.slice' op needs a dist.mesh in the module around it}}
  %0 = "dist.slice"(%x) {axes = ["tensor"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.slice' op dim is 2; it must be from 0 to 1}}
  %0 = "dist.slice"(%x) {axes = ["tensor"], dim = 2} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.slice' op dim is -1; it must be from 0 to 1}}
  %0 = "dist.slice"(%x) {axes = ["tensor"], dim = -1} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[],f32>) {
  // expected-error@+1 {{'dist.slice' op needs a tensor with a dim; this one is a scalar}}
  %0 = "dist.slice"(%x) {axes = ["tensor"], dim = 0} : (!torch.vtensor<[],f32>) -> !torch.vtensor<[],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.slice' op must give !torch.vtensor<[1,8],f32>, not !torch.vtensor<[4,8],f32>: one of 4 blocks of dim 0 is kept}}
  %0 = "dist.slice"(%x) {axes = ["tensor"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.slice' op dim 0 of size 4 does not divide into 8 equal blocks}}
  %0 = "dist.slice"(%x) {axes = ["data", "tensor"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.slice' op attribute "dim" is expected but not provided}}
  %0 = "dist.slice"(%x) {axes = ["data"]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[2,8],f32>
  return
}
