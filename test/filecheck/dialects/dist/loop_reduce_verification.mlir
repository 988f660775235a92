// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.loop_reduce' op leads out of a loop over a time axis; 'tensor' is a space axis}}
  %0 = "dist.loop_reduce"(%x) {axes = ["tensor"], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.loop_reduce' op unknown reduction 'mean'; there are 'sum', 'max', 'min'}}
  %0 = "dist.loop_reduce"(%x) {axes = ["micro"], reduction = "mean"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.loop_reduce' op must give !torch.vtensor<[4,8],f32>, not !torch.vtensor<[2,8],f32>: the terms have the type of their sum}}
  %0 = "dist.loop_reduce"(%x) {axes = ["micro"], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[2,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.loop_reduce' op attribute "reduction" is expected but not provided}}
  %0 = "dist.loop_reduce"(%x) {axes = ["micro"]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}
