// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.offset' op unknown axis 'dat'}}
  %0 = "dist.offset"() {axes = ["dat"], base = 0, extent = 1, scale = 1} : () -> !torch.int
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.offset' op no axes are given; at least one is needed}}
  %0 = "dist.offset"() {axes = [], base = 0, extent = 1, scale = 1} : () -> !torch.int
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.offset' op extent is -4; it must be at least 0}}
  %0 = "dist.offset"() {axes = ["data"], base = 0, extent = -4, scale = 1} : () -> !torch.int
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.offset' op takes and gives !torch.int, not !torch.vtensor<[4,8],f32>}}
  %0 = "dist.offset"(%x) {axes = ["data"], base = 0, extent = 4, scale = 1} : (!torch.vtensor<[4,8],f32>) -> !torch.int
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.offset' op takes and gives !torch.int, not !torch.float}}
  %0 = "dist.offset"() {axes = ["data"], base = 0, extent = 4, scale = 1} : () -> !torch.float
  return
}

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
func.func @f(%x: !torch.vtensor<[4,8],f32>) {
  // expected-error@+1 {{'dist.offset' op attribute "scale" is expected but not provided}}
  %0 = "dist.offset"() {axes = ["data"], base = 0, extent = 4} : () -> !torch.int
  return
}
