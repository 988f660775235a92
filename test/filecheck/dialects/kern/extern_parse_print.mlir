// RUN: shardc-opt %s | shardc-opt | filecheck %s

// A library's call: two tensors, and what the schema wants besides. The bias is not given: None.
// CHECK-LABEL: @library
func.func @library(%x: !torch.vtensor<[4,8],f32>, %w: !torch.vtensor<[16,8],f32>) -> !torch.vtensor<[4,16],f32> {
  // CHECK: %[[IN:.*]] = torch.prim.TupleConstruct %arg0, %arg1
  %ins = torch.prim.TupleConstruct %x, %w : !torch.vtensor<[4,8],f32>, !torch.vtensor<[16,8],f32> -> !torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>
  // CHECK: %[[OUT:.*]] = "kern.extern"(%[[IN]]) {arguments = {algorithm = "tanh", attr = "gelu", scalars = []}, reads = ["X", "W"], target = "mkldnn._linear_pointwise"} : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  %outs = "kern.extern"(%ins) {target = "mkldnn._linear_pointwise", reads = ["X", "W"], arguments = {attr = "gelu", scalars = [], algorithm = "tanh"}}
    : (!torch.tuple<vtensor<[4,8],f32>, vtensor<[16,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  %y = torch.prim.TupleUnpack %outs : !torch.tuple<vtensor<[4,16],f32>> -> !torch.vtensor<[4,16],f32>
  return %y : !torch.vtensor<[4,16],f32>
}

// ATen's call with several results and an absent list; no operands, and a dtype by PyTorch's number.
// CHECK-LABEL: @aten
func.func @aten(%x: !torch.vtensor<[4,8],f32>) -> (!torch.vtensor<[4],f32>, !torch.vtensor<[4],si64>, !torch.vtensor<[2],f64>) {
  %ins = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // CHECK: "kern.extern"(%{{.*}}) {arguments = {dim = 1 : i64, keepdim = false}, reads = ["self"], target = "aten.max.dim"}
  %max = "kern.extern"(%ins) {target = "aten.max.dim", reads = ["self"], arguments = {dim = 1, keepdim = false}}
    : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4],f32>, vtensor<[4],si64>>
  %values, %indices = torch.prim.TupleUnpack %max : !torch.tuple<vtensor<[4],f32>, vtensor<[4],si64>> -> !torch.vtensor<[4],f32>, !torch.vtensor<[4],si64>
  // CHECK: "kern.extern"() {arguments = {dtype = 7 : i64, size = [2]}, reads = [], target = "aten.zeros"} : () -> !torch.tuple<vtensor<[2],f64>>
  %made = "kern.extern"() {target = "aten.zeros", reads = [], arguments = {size = [2], dtype = 7}} : () -> !torch.tuple<vtensor<[2],f64>>
  %zeros = torch.prim.TupleUnpack %made : !torch.tuple<vtensor<[2],f64>> -> !torch.vtensor<[2],f64>
  return %values, %indices, %zeros : !torch.vtensor<[4],f32>, !torch.vtensor<[4],si64>, !torch.vtensor<[2],f64>
}
