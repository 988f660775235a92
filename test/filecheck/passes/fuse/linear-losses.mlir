// RUN: shardc-opt --pipeline 'kern-fuse{matmuls=generated linear-losses=true}' --split-input-file %s | filecheck %s
// RUN: shardc-opt --kern-fuse --split-input-file %s | filecheck %s --check-prefix=CPU

// A linear layer, the logarithm of its softmax at one class a row, and the gradients: two kernels, no logits.
// CHECK-LABEL: func.func @step
// CHECK-NOT: torch.aten.mm
// CHECK: "kern.linear_cross_entropy"(%{{.*}}) : (tensor<24x12xbf16>, tensor<50x12xbf16>, tensor<24xi64>)
// CHECK: kern.calls = ["0.1", "0.2", "0.3", "0.4"], kern.checks =
// CHECK-SAME: Target {} is out of bounds.
// CHECK: "kern.linear_cross_entropy_backward"(%{{.*}}) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>, scale = -1.000000e+00 : f64}
// CHECK: dist.phase = "backward", kern.calls = ["0.5", "0.6", "0.7", "0.8", "0.9", "0.10", "0.12"]
// CHECK: torch.prim.TupleUnpack %{{.*}} {dist.name = "grad:head.weight#1"}
// CHECK-NOT: torch.aten.mm
// CPU-NOT: kern.linear_cross_entropy
func.func @step(%rows: !torch.vtensor<[24,12],bf16>, %w: !torch.vtensor<[50,12],bf16>, %index: !torch.vtensor<[24,1],si64>, %share: !torch.vtensor<[24,1],f32>) -> (!torch.vtensor<[24,1],f32>, !torch.vtensor<[24,12],bf16>, !torch.vtensor<[50,12],bf16>) {
  %none = torch.constant.none
  %false = torch.constant.bool false
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %f32 = torch.constant.int 6
  %bf16 = torch.constant.int 15
  %minus = torch.constant.float -1.0
  %n24 = torch.constant.int 24
  %n50 = torch.constant.int 50
  %shape = torch.prim.ListConstruct %n24, %n50 : (!torch.int, !torch.int) -> !torch.list<int>
  %t = torch.aten.t %w : !torch.vtensor<[50,12],bf16> -> !torch.vtensor<[12,50],bf16>
  %logits = torch.aten.mm %rows, %t {dist.phase = "forward"} : !torch.vtensor<[24,12],bf16>, !torch.vtensor<[12,50],bf16> -> !torch.vtensor<[24,50],bf16>
  %wide = torch.aten._to_copy %logits, %f32, %none, %none, %none, %false, %none {dist.phase = "forward"} : !torch.vtensor<[24,50],bf16>, !torch.int, !torch.none, !torch.none, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[24,50],f32>
  %logp = torch.aten._log_softmax %wide, %int1, %false {dist.phase = "forward"} : !torch.vtensor<[24,50],f32>, !torch.int, !torch.bool -> !torch.vtensor<[24,50],f32>
  %picked = torch.aten.gather %logp, %int1, %index, %false {dist.phase = "forward"} : !torch.vtensor<[24,50],f32>, !torch.int, !torch.vtensor<[24,1],si64>, !torch.bool -> !torch.vtensor<[24,1],f32>
  %zeros = torch.aten.full %shape, %int0, %f32, %none, %none, %none {dist.phase = "backward"} : !torch.list<int>, !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[24,50],f32>
  %ones = torch.aten.scatter.value %zeros, %int1, %index, %minus {dist.phase = "backward"} : !torch.vtensor<[24,50],f32>, !torch.int, !torch.vtensor<[24,1],si64>, !torch.float -> !torch.vtensor<[24,50],f32>
  %grad = torch.aten.mul.Tensor %ones, %share {dist.phase = "backward"} : !torch.vtensor<[24,50],f32>, !torch.vtensor<[24,1],f32> -> !torch.vtensor<[24,50],f32>
  %slopes = torch.aten._log_softmax_backward_data %grad, %logp, %int1, %f32 {dist.phase = "backward"} : !torch.vtensor<[24,50],f32>, !torch.vtensor<[24,50],f32>, !torch.int, !torch.int -> !torch.vtensor<[24,50],f32>
  %narrow = torch.aten._to_copy %slopes, %bf16, %none, %none, %none, %false, %none {dist.phase = "backward"} : !torch.vtensor<[24,50],f32>, !torch.int, !torch.none, !torch.none, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[24,50],bf16>
  %drows = torch.aten.mm %narrow, %w {dist.phase = "backward"} : !torch.vtensor<[24,50],bf16>, !torch.vtensor<[50,12],bf16> -> !torch.vtensor<[24,12],bf16>
  %turned = torch.aten.t %narrow : !torch.vtensor<[24,50],bf16> -> !torch.vtensor<[50,24],bf16>
  %dw = torch.aten.mm %turned, %rows {dist.name = "grad:head.weight", dist.phase = "backward"} : !torch.vtensor<[50,24],bf16>, !torch.vtensor<[24,12],bf16> -> !torch.vtensor<[50,12],bf16>
  return %picked, %drows, %dw : !torch.vtensor<[24,1],f32>, !torch.vtensor<[24,12],bf16>, !torch.vtensor<[50,12],bf16>
}

// -----

// Somebody else reads the logits: they are made, and all calls stay what they were.
// CHECK-LABEL: func.func @step
// CHECK-NOT: kern.linear_cross_entropy
func.func @step(%rows: !torch.vtensor<[24,12],f32>, %w: !torch.vtensor<[50,12],f32>, %index: !torch.vtensor<[24,1],si64>) -> (!torch.vtensor<[24,1],f32>, !torch.vtensor<[24,50],f32>) {
  %false = torch.constant.bool false
  %int1 = torch.constant.int 1
  %t = torch.aten.t %w : !torch.vtensor<[50,12],f32> -> !torch.vtensor<[12,50],f32>
  %logits = torch.aten.mm %rows, %t : !torch.vtensor<[24,12],f32>, !torch.vtensor<[12,50],f32> -> !torch.vtensor<[24,50],f32>
  %logp = torch.aten._log_softmax %logits, %int1, %false : !torch.vtensor<[24,50],f32>, !torch.int, !torch.bool -> !torch.vtensor<[24,50],f32>
  %picked = torch.aten.gather %logp, %int1, %index, %false : !torch.vtensor<[24,50],f32>, !torch.int, !torch.vtensor<[24,1],si64>, !torch.bool -> !torch.vtensor<[24,1],f32>
  return %picked, %logits : !torch.vtensor<[24,1],f32>, !torch.vtensor<[24,50],f32>
}

// -----

// The op that graphs of torch.compile hold, with a bias and the gradient of all classes: what is read is made.
// CHECK-LABEL: func.func @step
// CHECK: "kern.linear_cross_entropy"(%{{.*}}) : (tensor<24x12xbf16>, tensor<50x12xbf16>, tensor<24xi64>, tensor<50xbf16>)
// CHECK: kern.calls = ["0.0"], kern.checks = {{.*}}Target {} is out of bounds.
// CHECK: "kern.linear_cross_entropy_backward"(%{{.*}}) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 1, 1, 0>, scale = 1.000000e+00 : f64}
// CHECK-NOT: torch.operator
// CPU: torch.operator "torch.shardc.linear_cross_entropy"
func.func @step(%rows: !torch.vtensor<[24,12],bf16>, %w: !torch.vtensor<[50,12],bf16>, %bias: !torch.vtensor<[50],bf16>, %index: !torch.vtensor<[24],si64>, %grad: !torch.vtensor<[24],f32>, %spread: !torch.vtensor<[24],f32>) -> (!torch.vtensor<[24],f32>, !torch.vtensor<[24,12],bf16>, !torch.vtensor<[50],bf16>) {
  %none = torch.constant.none
  %one = torch.constant.float 1.0
  %l:4 = torch.operator "torch.shardc.linear_cross_entropy"(%rows, %w, %index, %bias) {dist.phase = "forward"} : (!torch.vtensor<[24,12],bf16>, !torch.vtensor<[50,12],bf16>, !torch.vtensor<[24],si64>, !torch.vtensor<[50],bf16>) -> (!torch.vtensor<[24],f32>, !torch.vtensor<[24],f32>, !torch.vtensor<[24],f32>, !torch.vtensor<[24],f32>)
  %d:3 = torch.operator "torch.shardc.linear_cross_entropy_backward"(%grad, %rows, %w, %index, %l#1, %none, %bias, %spread, %none, %one) {dist.phase = "backward"} : (!torch.vtensor<[24],f32>, !torch.vtensor<[24,12],bf16>, !torch.vtensor<[50,12],bf16>, !torch.vtensor<[24],si64>, !torch.vtensor<[24],f32>, !torch.none, !torch.vtensor<[50],bf16>, !torch.vtensor<[24],f32>, !torch.none, !torch.float) -> (!torch.vtensor<[24,12],bf16>, !torch.vtensor<[50,12],bf16>, !torch.vtensor<[50],bf16>)
  return %l#0, %d#0, %d#2 : !torch.vtensor<[24],f32>, !torch.vtensor<[24,12],bf16>, !torch.vtensor<[50],bf16>
}

// -----

// Devices share out the classes: each tells the others its rows' largest logits and sums, and makes no logits either.
// Labels are made by calls, for the kernel reads them before the program does.
// CHECK-LABEL: func.func @step
// CHECK-NOT: torch.aten.amax
// CHECK: torch.aten.clamp
// CHECK: %[[FORWARD:.*]]:5 = "kern.linear_cross_entropy"(%{{.*}}) : (tensor<24x12xf32>, tensor<25x12xf32>, tensor<24xi64>)
// CHECK: unrealized_conversion_cast %[[FORWARD]]#0, %[[FORWARD]]#1, %[[FORWARD]]#2, %[[FORWARD]]#4
// CHECK: kern.calls = ["0.1", "0.2", "0.4", "0.5", "0.6", "0.9", "0.13"]
// CHECK: "dist.all_reduce"(%{{.*}}) {axes = ["tensor"], dist.phase = "forward", reduction = "max"} : (!torch.vtensor<[24,1],f32>)
// CHECK: torch.aten.exp {{.*}}<[24,1],f32>
// CHECK: "dist.all_reduce"(%{{.*}}) {axes = ["tensor"], dist.phase = "forward", reduction = "sum"} : (!torch.vtensor<[24,1],f32>)
// CHECK: "dist.all_reduce"(%{{.*}}) {axes = ["tensor"], dist.phase = "backward", reduction = "sum"} : (!torch.vtensor<[24,1],f32>)
// CHECK: "kern.linear_cross_entropy_backward"(%{{.*}}) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 1>, scale = 1.000000e+00 : f64}
// CHECK-NOT: torch.aten.mm
"dist.mesh"() {axes = [["tensor", 2, "space"]], sym_name = "mesh"} : () -> ()
func.func @step(%rows: !torch.vtensor<[24,12],f32>, %w: !torch.vtensor<[25,12],f32>, %label: !torch.vtensor<[24,1],si64>, %share: !torch.vtensor<[24,1],f32>) -> (!torch.vtensor<[24,1],f32>, !torch.vtensor<[24,12],f32>, !torch.vtensor<[25,12],f32>) {
  %none = torch.constant.none
  %true = torch.constant.bool true
  %false = torch.constant.bool false
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %last = torch.constant.int 24
  %f32 = torch.constant.int 6
  %zero = torch.constant.float 0.0
  %minus = torch.constant.float -1.0
  %n25 = torch.constant.int 25
  %shape = torch.prim.ListConstruct %last, %n25 : (!torch.int, !torch.int) -> !torch.list<int>
  %dim = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %t = torch.aten.t %w : !torch.vtensor<[25,12],f32> -> !torch.vtensor<[12,25],f32>
  %logits = torch.aten.mm %rows, %t {dist.phase = "forward"} : !torch.vtensor<[24,12],f32>, !torch.vtensor<[12,25],f32> -> !torch.vtensor<[24,25],f32>
  %top = torch.aten.amax %logits, %dim, %true {dist.phase = "forward"} : !torch.vtensor<[24,25],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[24,1],f32>
  %tops = "dist.all_reduce"(%top) {axes = ["tensor"], dist.phase = "forward", reduction = "max"} : (!torch.vtensor<[24,1],f32>) -> !torch.vtensor<[24,1],f32>
  %shifted = torch.aten.sub.Tensor %logits, %tops, %int1 {dist.phase = "forward"} : !torch.vtensor<[24,25],f32>, !torch.vtensor<[24,1],f32>, !torch.int -> !torch.vtensor<[24,25],f32>
  %raised = torch.aten.exp %shifted {dist.phase = "forward"} : !torch.vtensor<[24,25],f32> -> !torch.vtensor<[24,25],f32>
  %total = torch.aten.sum.dim_IntList %raised, %dim, %true, %none {dist.phase = "forward"} : !torch.vtensor<[24,25],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[24,1],f32>
  %totals = "dist.all_reduce"(%total) {axes = ["tensor"], dist.phase = "forward", reduction = "sum"} : (!torch.vtensor<[24,1],f32>) -> !torch.vtensor<[24,1],f32>
  %log = torch.aten.log %totals {dist.phase = "forward"} : !torch.vtensor<[24,1],f32> -> !torch.vtensor<[24,1],f32>
  %logp = torch.aten.sub.Tensor %shifted, %log, %int1 {dist.phase = "forward"} : !torch.vtensor<[24,25],f32>, !torch.vtensor<[24,1],f32>, !torch.int -> !torch.vtensor<[24,25],f32>
  %offset = "dist.offset"() {axes = ["tensor"], base = 0 : i64, extent = 25 : i64, scale = 1 : i64} : () -> !torch.int
  %at = torch.aten.sub.Scalar %label, %offset, %int1 {dist.phase = "forward"} : !torch.vtensor<[24,1],si64>, !torch.int, !torch.int -> !torch.vtensor<[24,1],si64>
  %index = torch.aten.clamp %at, %int0, %last {dist.phase = "forward"} : !torch.vtensor<[24,1],si64>, !torch.int, !torch.int -> !torch.vtensor<[24,1],si64>
  %picked = torch.aten.gather %logp, %int1, %index, %false {dist.phase = "forward"} : !torch.vtensor<[24,25],f32>, !torch.int, !torch.vtensor<[24,1],si64>, !torch.bool -> !torch.vtensor<[24,1],f32>
  %mine = torch.aten.eq.Tensor %index, %at {dist.phase = "forward"} : !torch.vtensor<[24,1],si64>, !torch.vtensor<[24,1],si64> -> !torch.vtensor<[24,1],i1>
  %zeros = torch.aten.full %shape, %zero, %f32, %none, %none, %none {dist.phase = "backward"} : !torch.list<int>, !torch.float, !torch.int, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[24,25],f32>
  %kept = torch.aten.gather %zeros, %int1, %index, %false {dist.phase = "backward"} : !torch.vtensor<[24,25],f32>, !torch.int, !torch.vtensor<[24,1],si64>, !torch.bool -> !torch.vtensor<[24,1],f32>
  %one = torch.aten.masked_fill.Scalar %kept, %mine, %minus {dist.phase = "backward"} : !torch.vtensor<[24,1],f32>, !torch.vtensor<[24,1],i1>, !torch.float -> !torch.vtensor<[24,1],f32>
  %ones = torch.aten.scatter.src %zeros, %int1, %index, %one {dist.phase = "backward"} : !torch.vtensor<[24,25],f32>, !torch.int, !torch.vtensor<[24,1],si64>, !torch.vtensor<[24,1],f32> -> !torch.vtensor<[24,25],f32>
  %grad = torch.aten.mul.Tensor %ones, %share {dist.phase = "backward"} : !torch.vtensor<[24,25],f32>, !torch.vtensor<[24,1],f32> -> !torch.vtensor<[24,25],f32>
  %p = torch.aten.exp %logp {dist.phase = "backward"} : !torch.vtensor<[24,25],f32> -> !torch.vtensor<[24,25],f32>
  %sum = torch.aten.sum.dim_IntList %grad, %dim, %true, %none {dist.phase = "backward"} : !torch.vtensor<[24,25],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[24,1],f32>
  %sums = "dist.all_reduce"(%sum) {axes = ["tensor"], dist.phase = "backward", reduction = "sum"} : (!torch.vtensor<[24,1],f32>) -> !torch.vtensor<[24,1],f32>
  %fall = torch.aten.mul.Tensor %p, %sums {dist.phase = "backward"} : !torch.vtensor<[24,25],f32>, !torch.vtensor<[24,1],f32> -> !torch.vtensor<[24,25],f32>
  %slopes = torch.aten.sub.Tensor %grad, %fall, %int1 {dist.phase = "backward"} : !torch.vtensor<[24,25],f32>, !torch.vtensor<[24,25],f32>, !torch.int -> !torch.vtensor<[24,25],f32>
  %drows = torch.aten.mm %slopes, %w {dist.phase = "backward"} : !torch.vtensor<[24,25],f32>, !torch.vtensor<[25,12],f32> -> !torch.vtensor<[24,12],f32>
  %turned = torch.aten.t %slopes : !torch.vtensor<[24,25],f32> -> !torch.vtensor<[25,24],f32>
  %dw = torch.aten.mm %turned, %rows {dist.phase = "backward"} : !torch.vtensor<[25,24],f32>, !torch.vtensor<[24,12],f32> -> !torch.vtensor<[25,12],f32>
  return %picked, %drows, %dw : !torch.vtensor<[24,1],f32>, !torch.vtensor<[24,12],f32>, !torch.vtensor<[25,12],f32>
}
