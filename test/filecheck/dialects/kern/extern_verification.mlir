// RUN: shardc-opt %s --verify-diagnostics --split-input-file

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op calls aten.nothing, and PyTorch has no such operator in this process}}
  %outs = "kern.extern"(%ins) {target = "aten.nothing", reads = ["X"], arguments = {}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op calls aten.add_.Tensor, which writes to its operands}}
  %outs = "kern.extern"(%ins) {target = "aten.add_.Tensor", reads = ["self", "other"], arguments = {}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op calls aten.rand_like, which draws random numbers}}
  %outs = "kern.extern"(%ins) {target = "aten.rand_like", reads = ["self"], arguments = {}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op has 2 operands, and reads names 1 parameters}}
  %outs = "kern.extern"(%ins) {target = "mkldnn._linear_pointwise", reads = ["X"], arguments = {attr = "none", scalars = [], algorithm = ""}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op mkldnn._linear_pointwise has no parameter V; it has X, W, B, attr, scalars, algorithm}}
  %outs = "kern.extern"(%ins) {target = "mkldnn._linear_pointwise", reads = ["X", "V"], arguments = {attr = "none", scalars = [], algorithm = ""}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op reads must name each parameter once, in the order X, W, B, attr, scalars, algorithm}}
  %outs = "kern.extern"(%ins) {target = "mkldnn._linear_pointwise", reads = ["W", "X"], arguments = {attr = "none", scalars = [], algorithm = ""}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op other of aten.mul.Scalar has type number: arguments must give it}}
  %outs = "kern.extern"(%ins) {target = "aten.mul.Scalar", reads = ["self", "other"], arguments = {}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op B of mkldnn._linear_pointwise has type Optional[Tensor]: an operand must give it}}
  %outs = "kern.extern"(%ins) {target = "mkldnn._linear_pointwise", reads = ["X", "W"], arguments = {B = 1, attr = "none", scalars = [], algorithm = ""}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op must give W of mkldnn._linear_pointwise, a Tensor}}
  %outs = "kern.extern"(%ins) {target = "mkldnn._linear_pointwise", reads = ["X", "B"], arguments = {attr = "none", scalars = [], algorithm = ""}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op must give attr of mkldnn._linear_pointwise, a str}}
  %outs = "kern.extern"(%ins) {target = "mkldnn._linear_pointwise", reads = ["X", "W"], arguments = {scalars = []}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op attr must be a number, a truth value, a string or a list of those, not @f}}
  %outs = "kern.extern"(%ins) {target = "mkldnn._linear_pointwise", reads = ["X", "W"], arguments = {attr = @f, scalars = []}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op reads holds names of parameters, not 1 : i64}}
  %outs = "kern.extern"(%ins) {target = "mkldnn._linear_pointwise", reads = ["X", 1], arguments = {attr = "none", scalars = [], algorithm = ""}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op must have the 1 results of mkldnn._linear_pointwise, not 2}}
  %outs = "kern.extern"(%ins) {target = "mkldnn._linear_pointwise", reads = ["X", "W"], arguments = {attr = "none", scalars = [], algorithm = ""}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>, vtensor<[4],f32>>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) {
  // expected-error@+1 {{'kern.extern' op takes and gives tuples of values (torch.prim.TupleConstruct), not !torch.vtensor<[4,16],f32>}}
  %outs = "kern.extern"(%ins) {target = "mkldnn._linear_pointwise", reads = ["X", "W"], arguments = {attr = "none", scalars = [], algorithm = ""}} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.vtensor<[4,16],f32>
  return
}

// -----

func.func @f(%ins: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'kern.extern' op attribute "target" is expected but not provided}}
  %outs = "kern.extern"(%ins) {reads = ["self"], arguments = {}} : (!torch.tuple<vtensor<[4],f32>>) -> !torch.tuple<vtensor<[4],f32>>
  return
}
