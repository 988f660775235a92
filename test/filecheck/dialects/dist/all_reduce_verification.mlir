// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_reduce' op unknown axis 'tensr'; the mesh has 'data', 'tensor', 'micro'; did you mean 'tensor'?}}
  %0 = "dist.all_reduce"(%x) {axes = ["tensr"], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_reduce' op axis 'tensor' appears twice}}
  %0 = "dist.all_reduce"(%x) {axes = ["tensor", "tensor"], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_reduce' op axes tensor:(1)4 and tensor:(2)2 overlap}}
  %0 = "dist.all_reduce"(%x) {axes = [#dist.axis<"tensor", 1, 4>, #dist.axis<"tensor", 2, 2>], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_reduce' op no axes are given; at least one is needed}}
  %0 = "dist.all_reduce"(%x) {axes = [], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_reduce' op an axis is "name" or #dist.axis<"name", pre, size>, not 4}}
  %0 = "dist.all_reduce"(%x) {axes = [4], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_reduce' op needs a dist.mesh in the module around it}}
  %0 = "dist.all_reduce"(%x) {axes = ["tensor"], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_reduce' op works over devices, but 'micro' is a time axis: use a dist.loop}}
  %0 = "dist.all_reduce"(%x) {axes = ["micro"], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_reduce' op unknown reduction 'mean'; there are 'sum', 'max', 'min'}}
  %0 = "dist.all_reduce"(%x) {axes = ["tensor"], reduction = "mean"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_reduce' op must give !torch.vtensor<[4,8],f32>, not !torch.vtensor<[2,8],f32>: an all-reduce keeps the shape}}
  %0 = "dist.all_reduce"(%x) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[2,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_reduce' op attribute "reduction" is expected but not provided}}
  %0 = "dist.all_reduce"(%x) {axes = ["data"]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_reduce' op attribute "axes" is expected but not provided}}
  %0 = "dist.all_reduce"(%x) {reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.int) {
  // expected-error@+1 {{'dist.all_reduce' op operand 0 must be a value tensor with static shape, such as !torch.vtensor<[4,8],f32>, not !torch.int}}
  %0 = "dist.all_reduce"(%x) {axes = ["data"], reduction = "sum"} : (!torch.int) -> !torch.int
  return
}
