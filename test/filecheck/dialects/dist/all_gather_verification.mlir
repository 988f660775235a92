// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_gather' op unknown axis 'tensr'; the mesh has 'data', 'tensor', 'micro'; did you mean 'tensor'?}}
  %0 = "dist.all_gather"(%x) {axes = ["tensr"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_gather' op axis 'tensor' appears twice}}
  %0 = "dist.all_gather"(%x) {axes = ["tensor", "tensor"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_gather' op axes tensor:(1)4 and tensor:(2)2 overlap}}
  %0 = "dist.all_gather"(%x) {axes = [#dist.axis<"tensor", 1, 4>, #dist.axis<"tensor", 2, 2>], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_gather' op no axes are given; at least one is needed}}
  %0 = "dist.all_gather"(%x) {axes = [], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_gather' op an axis is "name" or #dist.axis<"name", pre, size>, not 4}}
  %0 = "dist.all_gather"(%x) {axes = [4], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],f32>
  return
}

// -----

func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_gather' op needs a dist.mesh in the module around it}}
  %0 = "dist.all_gather"(%x) {axes = ["tensor"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_gather' op works over devices, but 'micro' is a time axis: use a dist.loop}}
  %0 = "dist.all_gather"(%x) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_gather' op dim is 2; it must be from 0 to 1}}
  %0 = "dist.all_gather"(%x) {axes = ["tensor"], dim = 2} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_gather' op dim is -1; it must be from 0 to 1}}
  %0 = "dist.all_gather"(%x) {axes = ["tensor"], dim = -1} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[],f32>) {
  // expected-error@+1 {{'dist.all_gather' op needs a tensor with a dim; this one is a scalar}}
  %0 = "dist.all_gather"(%x) {axes = ["tensor"], dim = 0} : (!torch.vtensor<[],f32>) -> !torch.vtensor<[],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_gather' op must give !torch.vtensor<[16,8],f32>, not !torch.vtensor<[8,8],f32>: dim 0 is gathered from 4 devices}}
  %0 = "dist.all_gather"(%x) {axes = ["tensor"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[8,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_gather' op must give !torch.vtensor<[16,8],f32>, not !torch.vtensor<[16,8],bf16>}}
  %0 = "dist.all_gather"(%x) {axes = ["tensor"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],bf16>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_gather' op attribute "dim" is expected but not provided}}
  %0 = "dist.all_gather"(%x) {axes = ["data"]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[8,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.int) {
  // expected-error@+1 {{'dist.all_gather' op operand 0 must be a value tensor with static shape, such as !torch.vtensor<[4,8],f32>, not !torch.int}}
  %0 = "dist.all_gather"(%x) {axes = ["data"], dim = 0} : (!torch.int) -> !torch.int
  return
}
