// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_to_all' op unknown axis 'tensr'; the mesh has 'data', 'tensor', 'micro'; did you mean 'tensor'?}}
  %0 = "dist.all_to_all"(%x) {axes = ["tensr"], split_dim = 1, concat_dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,2],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_to_all' op axis 'tensor' appears twice}}
  %0 = "dist.all_to_all"(%x) {axes = ["tensor", "tensor"], split_dim = 1, concat_dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,2],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_to_all' op axes tensor:(1)4 and tensor:(2)2 overlap}}
  %0 = "dist.all_to_all"(%x) {axes = [#dist.axis<"tensor", 1, 4>, #dist.axis<"tensor", 2, 2>], split_dim = 1, concat_dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,2],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_to_all' op no axes are given; at least one is needed}}
  %0 = "dist.all_to_all"(%x) {axes = [], split_dim = 1, concat_dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,2],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_to_all' op an axis is "name" or #dist.axis<"name", pre, size>, not 4}}
  %0 = "dist.all_to_all"(%x) {axes = [4], split_dim = 1, concat_dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,2],f32>
  return
}

// -----

func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_to_all' op needs a dist.mesh in the module around it}}
  %0 = "dist.all_to_all"(%x) {axes = ["tensor"], split_dim = 1, concat_dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,2],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_to_all' op works over devices, but 'micro' is a time axis: use a dist.loop}}
  %0 = "dist.all_to_all"(%x) {axes = ["micro"], split_dim = 1, concat_dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,2],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_to_all' op split_dim and concat_dim are both 1; they must differ}}
  %0 = "dist.all_to_all"(%x) {axes = ["tensor"], concat_dim = 1, split_dim = 1} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_to_all' op split_dim is 2; it must be from 0 to 1}}
  %0 = "dist.all_to_all"(%x) {axes = ["tensor"], concat_dim = 0, split_dim = 2} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_to_all' op concat_dim is 2; it must be from 0 to 1}}
  %0 = "dist.all_to_all"(%x) {axes = ["tensor"], concat_dim = 2, split_dim = 1} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_to_all' op must give !torch.vtensor<[16,2],f32>, not !torch.vtensor<[4,8],f32>: dim 1 is cut and dim 0 made whole over 4 devices}}
  %0 = "dist.all_to_all"(%x) {axes = ["tensor"], concat_dim = 0, split_dim = 1} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_to_all' op dim 0 of size 4 does not divide into 8 equal blocks}}
  %0 = "dist.all_to_all"(%x) {axes = ["data", "tensor"], concat_dim = 1, split_dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,32],f32>
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.all_to_all' op attribute "concat_dim" is expected but not provided}}
  %0 = "dist.all_to_all"(%x) {axes = ["data"], split_dim = 1} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[8,4],f32>
  return
}
