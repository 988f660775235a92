// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.loop_stack' op leads out of a loop over a time axis; 'tensor' is a space axis}}
  %0 = "dist.loop_stack"(%x) {axes = ["tensor"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.loop_stack' op dim is 2; it must be from 0 to 1}}
  %0 = "dist.loop_stack"(%x) {axes = ["micro"], dim = 2} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.loop_stack' op must give !torch.vtensor<[16,8],f32>, not !torch.vtensor<[4,8],f32>: 4 blocks of dim 0 are put together}}
  %0 = "dist.loop_stack"(%x) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.loop_stack' op attribute "dim" is expected but not provided}}
  %0 = "dist.loop_stack"(%x) {axes = ["micro"]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,8],f32>
  return
}
