// RUN: shardc-opt --split-input-file --torch-split-reductions %s | filecheck %s

// A softmax whose normalised dim will be cut over devices becomes maxima and sums, which may be partial.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"], ["micro", 2, "time"]]} : () -> ()

// The weight's columns are cut, so the logits' are. The gradient goes with it, and keeps what was said of it.
// CHECK-LABEL: func.func @loss
// CHECK: [[LOGITS:%[0-9]+]] = torch.aten.mm
// CHECK: [[LARGEST:%[0-9]+]] = torch.aten.amax [[LOGITS]], {{.*}} {dist.phase = "forward"} : !torch.vtensor<[8,32],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[8,1],f32>
// CHECK-NEXT: [[SHIFTED:%[0-9]+]] = torch.aten.sub.Tensor [[LOGITS]], [[LARGEST]]
// CHECK-NEXT: [[RAISED:%[0-9]+]] = torch.aten.exp [[SHIFTED]]
// CHECK-NEXT: [[SUM:%[0-9]+]] = torch.aten.sum.dim_IntList [[RAISED]]
// CHECK-NEXT: [[LOG:%[0-9]+]] = torch.aten.log [[SUM]]
// CHECK-NEXT: [[OUTPUT:%[0-9]+]] = torch.aten.sub.Tensor [[SHIFTED]], [[LOG]], {{.*}} {dist.name = "logprobs", dist.phase = "forward"}
// CHECK-NEXT: [[SOFTMAX:%[0-9]+]] = torch.aten.exp [[OUTPUT]] {dist.phase = "backward"}
// CHECK-NEXT: [[ALL:%[0-9]+]] = torch.aten.sum.dim_IntList %arg2
// CHECK-NEXT: [[PART:%[0-9]+]] = torch.aten.mul.Tensor [[SOFTMAX]], [[ALL]]
// CHECK-NEXT: [[GRAD:%[0-9]+]] = torch.aten.sub.Tensor %arg2, [[PART]], {{.*}} {dist.name = "grad:logits", dist.phase = "backward"}
// CHECK-NEXT: return [[OUTPUT]], [[GRAD]]
func.func @loss(
    %x: !torch.vtensor<[8,16],f32>,
    %w: !torch.vtensor<[16,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %g: !torch.vtensor<[8,32],f32>) -> (!torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>) {
  %int-1 = torch.constant.int -1
  %int6 = torch.constant.int 6
  %false = torch.constant.bool false
  %0 = torch.aten.mm %x, %w : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,32],f32> -> !torch.vtensor<[8,32],f32>
  %1 = torch.aten._log_softmax %0, %int-1, %false {dist.name = "logprobs", dist.phase = "forward"} : !torch.vtensor<[8,32],f32>, !torch.int, !torch.bool -> !torch.vtensor<[8,32],f32>
  %2 = torch.aten._log_softmax_backward_data %g, %1, %int-1, %int6 {dist.name = "grad:logits", dist.phase = "backward"} : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>, !torch.int, !torch.int -> !torch.vtensor<[8,32],f32>
  return %1, %2 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"], ["micro", 2, "time"]]} : () -> ()

// CHECK-LABEL: func.func @softmax
// CHECK: [[LARGEST:%[0-9]+]] = torch.aten.amax %arg0
// CHECK-NEXT: [[SHIFTED:%[0-9]+]] = torch.aten.sub.Tensor %arg0, [[LARGEST]]
// CHECK-NEXT: [[RAISED:%[0-9]+]] = torch.aten.exp [[SHIFTED]]
// CHECK-NEXT: [[SUM:%[0-9]+]] = torch.aten.sum.dim_IntList [[RAISED]]
// CHECK-NEXT: [[OUTPUT:%[0-9]+]] = torch.aten.div.Tensor [[RAISED]], [[SUM]]
// CHECK-NEXT: [[WEIGHTED:%[0-9]+]] = torch.aten.mul.Tensor %arg1, [[OUTPUT]]
// CHECK-NEXT: [[ALL:%[0-9]+]] = torch.aten.sum.dim_IntList [[WEIGHTED]]
// CHECK-NEXT: [[PART:%[0-9]+]] = torch.aten.mul.Tensor [[OUTPUT]], [[ALL]]
// CHECK-NEXT: [[GRAD:%[0-9]+]] = torch.aten.sub.Tensor [[WEIGHTED]], [[PART]]
// CHECK-NEXT: return [[OUTPUT]], [[GRAD]]
func.func @softmax(
    %x: !torch.vtensor<[8,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %g: !torch.vtensor<[8,32],f32>) -> (!torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>) {
  %int1 = torch.constant.int 1
  %int6 = torch.constant.int 6
  %false = torch.constant.bool false
  %0 = torch.aten._softmax %x, %int1, %false : !torch.vtensor<[8,32],f32>, !torch.int, !torch.bool -> !torch.vtensor<[8,32],f32>
  %1 = torch.aten._softmax_backward_data %g, %0, %int1, %int6 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>, !torch.int, !torch.int -> !torch.vtensor<[8,32],f32>
  return %0, %1 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"], ["micro", 2, "time"]]} : () -> ()

// 16-bit floats are computed in f32, as the native operator does inside; half_to_float leaves the result so.
// CHECK-LABEL: func.func @halves
// CHECK: [[WIDE:%[0-9]+]] = torch.aten._to_copy %arg0, {{.*}} -> !torch.vtensor<[8,32],f32>
// CHECK: torch.aten.amax [[WIDE]]
// CHECK: torch.aten.log
// CHECK-NEXT: [[OUTPUT:%[0-9]+]] = torch.aten.sub.Tensor
// CHECK-NEXT: [[FIRST:%[0-9]+]] = torch.aten._to_copy [[OUTPUT]], {{.*}} -> !torch.vtensor<[8,32],bf16>
// CHECK-NEXT: [[AGAIN:%[0-9]+]] = torch.aten._to_copy %arg0, {{.*}} -> !torch.vtensor<[8,32],f32>
// CHECK: torch.aten.amax [[AGAIN]]
// CHECK: torch.aten.log
// CHECK-NEXT: [[SECOND:%[0-9]+]] = torch.aten.sub.Tensor
// CHECK-NEXT: return [[FIRST]], [[SECOND]]
func.func @halves(%x: !torch.vtensor<[8,32],bf16> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>}) -> (!torch.vtensor<[8,32],bf16>, !torch.vtensor<[8,32],f32>) {
  %int1 = torch.constant.int 1
  %true = torch.constant.bool true
  %false = torch.constant.bool false
  %0 = torch.aten._log_softmax %x, %int1, %false : !torch.vtensor<[8,32],bf16>, !torch.int, !torch.bool -> !torch.vtensor<[8,32],bf16>
  %1 = torch.aten._log_softmax %x, %int1, %true : !torch.vtensor<[8,32],bf16>, !torch.int, !torch.bool -> !torch.vtensor<[8,32],f32>
  return %0, %1 : !torch.vtensor<[8,32],bf16>, !torch.vtensor<[8,32],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"], ["micro", 2, "time"]]} : () -> ()

// What is cut along another dim, or over time only, stays the native operator; so does a gradient of something else.
// CHECK-LABEL: func.func @native
// CHECK-NOT: torch.aten.amax
// CHECK: torch.aten._log_softmax %arg0
// CHECK: torch.aten._softmax %arg1
// CHECK: torch.aten._log_softmax_backward_data %arg2, %arg2
// CHECK-NOT: torch.aten.exp
func.func @native(
    %x: !torch.vtensor<[8,32],f32> {dist.sharding = #dist.sharding<@mesh, [["data", "tensor"], []], []>},
    %y: !torch.vtensor<[8,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["micro"]], []>},
    %z: !torch.vtensor<[8,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>}) -> (!torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>) {
  %int1 = torch.constant.int 1
  %int6 = torch.constant.int 6
  %false = torch.constant.bool false
  %0 = torch.aten._log_softmax %x, %int1, %false : !torch.vtensor<[8,32],f32>, !torch.int, !torch.bool -> !torch.vtensor<[8,32],f32>
  %1 = torch.aten._softmax %y, %int1, %false : !torch.vtensor<[8,32],f32>, !torch.int, !torch.bool -> !torch.vtensor<[8,32],f32>
  %2 = torch.aten._log_softmax_backward_data %z, %z, %int1, %int6 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>, !torch.int, !torch.int -> !torch.vtensor<[8,32],f32>
  return %0, %1, %2 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>
}
