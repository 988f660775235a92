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

// What is cut along another dim, or over time only, stays the native operator.
// CHECK-LABEL: func.func @native
// CHECK-NOT: torch.aten.amax
// CHECK: torch.aten._log_softmax %arg0
// CHECK: torch.aten._softmax %arg1
// CHECK: torch.aten._log_softmax_backward_data %arg0, %arg0
// CHECK-NOT: torch.aten.exp
func.func @native(
    %x: !torch.vtensor<[8,32],f32> {dist.sharding = #dist.sharding<@mesh, [["data", "tensor"], []], []>},
    %y: !torch.vtensor<[8,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["micro"]], []>}) -> (!torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>) {
  %int1 = torch.constant.int 1
  %int6 = torch.constant.int 6
  %false = torch.constant.bool false
  %0 = torch.aten._log_softmax %x, %int1, %false : !torch.vtensor<[8,32],f32>, !torch.int, !torch.bool -> !torch.vtensor<[8,32],f32>
  %1 = torch.aten._softmax %y, %int1, %false : !torch.vtensor<[8,32],f32>, !torch.int, !torch.bool -> !torch.vtensor<[8,32],f32>
  %2 = torch.aten._log_softmax_backward_data %x, %x, %int1, %int6 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>, !torch.int, !torch.int -> !torch.vtensor<[8,32],f32>
  return %0, %1, %2 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A row of minus infinity is not shifted by its maximum.
// CHECK-LABEL: func.func @logsumexp
// CHECK: [[TOP:%[0-9]+]] = torch.aten.amax %arg0
// CHECK-NEXT: [[INFINITE:%[0-9]+]] = torch.aten.isinf [[TOP]]
// CHECK-NEXT: [[SHIFT:%[0-9]+]] = torch.aten.masked_fill.Scalar [[TOP]], [[INFINITE]]
// CHECK-NEXT: [[SHIFTED:%[0-9]+]] = torch.aten.sub.Tensor %arg0, [[SHIFT]]
// CHECK-NEXT: [[RAISED:%[0-9]+]] = torch.aten.exp [[SHIFTED]]
// CHECK-NEXT: [[SUM:%[0-9]+]] = torch.aten.sum.dim_IntList [[RAISED]]
// CHECK-NEXT: [[LOG:%[0-9]+]] = torch.aten.log [[SUM]]
// CHECK-NEXT: [[FOUND:%[0-9]+]] = torch.aten.add.Tensor [[LOG]], [[SHIFT]]
// CHECK-NEXT: [[RESULT:%[0-9]+]] = torch.aten.view [[FOUND]]
// CHECK-NEXT: return [[RESULT]]
func.func @logsumexp(%x: !torch.vtensor<[8,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>}) -> !torch.vtensor<[8],f32> {
  %int1 = torch.constant.int 1
  %dims = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %0 = torch.aten.logsumexp %x, %dims, %false : !torch.vtensor<[8,32],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Two sums, so that nothing cancels. The softmax behind it will be cut too. A weight that ZeRO alone cuts says nothing.
// CHECK-LABEL: func.func @layer_norm
// CHECK: [[TOTAL:%[0-9]+]] = torch.aten.sum.dim_IntList %arg0
// CHECK-NEXT: [[MEAN:%[0-9]+]] = torch.aten.div.Scalar [[TOTAL]]
// CHECK-NEXT: [[CENTRED:%[0-9]+]] = torch.aten.sub.Tensor %arg0, [[MEAN]]
// CHECK-NEXT: [[SQUARES:%[0-9]+]] = torch.aten.mul.Tensor [[CENTRED]], [[CENTRED]]
// CHECK-NEXT: [[SUM:%[0-9]+]] = torch.aten.sum.dim_IntList [[SQUARES]]
// CHECK-NEXT: [[VARIANCE:%[0-9]+]] = torch.aten.div.Scalar [[SUM]]
// CHECK-NEXT: [[SHIFTED:%[0-9]+]] = torch.aten.add.Scalar [[VARIANCE]]
// CHECK-NEXT: [[RSTD:%[0-9]+]] = torch.aten.rsqrt [[SHIFTED]]
// CHECK-NEXT: [[NORMALISED:%[0-9]+]] = torch.aten.mul.Tensor [[CENTRED]], [[RSTD]]
// CHECK-NEXT: [[SCALED:%[0-9]+]] = torch.aten.mul.Tensor [[NORMALISED]], %arg1
// CHECK-NEXT: [[OUT:%[0-9]+]] = torch.aten.add.Tensor [[SCALED]], %arg2
// CHECK-NEXT: torch.aten.amax [[OUT]]
// CHECK: torch.aten.native_layer_norm %arg3
// CHECK-NEXT: return {{%[0-9]+}}, [[MEAN]]
func.func @layer_norm(
    %x: !torch.vtensor<[8,32],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], ["tensor"]], []>},
    %w: !torch.vtensor<[32],f32>, %b: !torch.vtensor<[32],f32>,
    %y: !torch.vtensor<[8,32],f32>,
    %stored: !torch.vtensor<[32],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> (!torch.vtensor<[8,32],f32>, !torch.vtensor<[8,1],f32>, !torch.vtensor<[8,32],f32>) {
  %int1 = torch.constant.int 1
  %int32 = torch.constant.int 32
  %shape = torch.prim.ListConstruct %int32 : (!torch.int) -> !torch.list<int>
  %eps = torch.constant.float 1.000000e-05
  %false = torch.constant.bool false
  %0:3 = torch.aten.native_layer_norm %x, %shape, %w, %b, %eps : !torch.vtensor<[8,32],f32>, !torch.list<int>, !torch.vtensor<[32],f32>, !torch.vtensor<[32],f32>, !torch.float -> !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,1],f32>, !torch.vtensor<[8,1],f32>
  %1 = torch.aten._softmax %0#0, %int1, %false : !torch.vtensor<[8,32],f32>, !torch.int, !torch.bool -> !torch.vtensor<[8,32],f32>
  %2:3 = torch.aten.native_layer_norm %y, %shape, %stored, %b, %eps : !torch.vtensor<[8,32],f32>, !torch.list<int>, !torch.vtensor<[32],f32>, !torch.vtensor<[32],f32>, !torch.float -> !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,1],f32>, !torch.vtensor<[8,1],f32>
  return %1, %0#1, %2#0 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,1],f32>, !torch.vtensor<[8,32],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// The names of a gradient's results stay with them, a refinement with the first that has a name; a gradient that nobody reads is not made.
// CHECK-LABEL: func.func @layer_norm_backward
// CHECK-NOT: native_layer_norm_backward
// CHECK: {dist.name = "grad:w", dist.refine = {{.*}}} : !torch.vtensor<[8,32],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[32],f32>
// CHECK-NEXT: torch.aten.sum.dim_IntList %arg0, {{.*}} {dist.name = "grad:b"}
func.func @layer_norm_backward(
    %g: !torch.vtensor<[8,32],f32>,
    %x: !torch.vtensor<[8,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %mean: !torch.vtensor<[8,1],f32>, %rstd: !torch.vtensor<[8,1],f32>,
    %w: !torch.vtensor<[32],f32>) -> (!torch.vtensor<[32],f32>, !torch.vtensor<[32],f32>) {
  %int32 = torch.constant.int 32
  %shape = torch.prim.ListConstruct %int32 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %mask = torch.prim.ListConstruct %true, %true, %true : (!torch.bool, !torch.bool, !torch.bool) -> !torch.list<bool>
  %0:3 = torch.aten.native_layer_norm_backward %g, %x, %shape, %mean, %rstd, %w, %w, %mask {dist.name = "grad:w#1,grad:b#2", dist.refine = [[1 : i64, "data", -1 : i64]]} : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>, !torch.list<int>, !torch.vtensor<[8,1],f32>, !torch.vtensor<[8,1],f32>, !torch.vtensor<[32],f32>, !torch.vtensor<[32],f32>, !torch.list<bool> -> !torch.vtensor<[8,32],f32>, !torch.vtensor<[32],f32>, !torch.vtensor<[32],f32>
  return %0#1, %0#2 : !torch.vtensor<[32],f32>, !torch.vtensor<[32],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// The first place that holds the maximum, or is no number.
// CHECK-LABEL: func.func @max
// CHECK: [[BEST:%[0-9]+]] = torch.aten.amax %arg0
// CHECK-NEXT: [[EQUAL:%[0-9]+]] = torch.aten.eq.Tensor %arg0, [[BEST]]
// CHECK-NEXT: [[NAN:%[0-9]+]] = torch.aten.ne.Tensor %arg0, %arg0
// CHECK-NEXT: [[HERE:%[0-9]+]] = torch.aten.logical_or [[EQUAL]], [[NAN]]
// CHECK-NEXT: [[COUNT:%[0-9]+]] = torch.aten.arange {{.*}} -> !torch.vtensor<[32],si32>
// CHECK-NEXT: [[PLACES:%[0-9]+]] = torch.aten.view [[COUNT]]
// CHECK-NEXT: [[CHOSEN:%[0-9]+]] = torch.aten.where.ScalarOther [[HERE]], [[PLACES]]
// CHECK-NEXT: [[FIRST:%[0-9]+]] = torch.aten.amin [[CHOSEN]]
// CHECK-NEXT: [[PLACE:%[0-9]+]] = torch.aten._to_copy [[FIRST]]
// CHECK-NEXT: return [[BEST]], [[PLACE]]
func.func @max(%x: !torch.vtensor<[8,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>}) -> (!torch.vtensor<[8,1],f32>, !torch.vtensor<[8,1],si64>) {
  %int1 = torch.constant.int 1
  %true = torch.constant.bool true
  %values, %indices = torch.aten.max.dim %x, %int1, %true : !torch.vtensor<[8,32],f32>, !torch.int, !torch.bool -> !torch.vtensor<[8,1],f32>, !torch.vtensor<[8,1],si64>
  return %values, %indices : !torch.vtensor<[8,1],f32>, !torch.vtensor<[8,1],si64>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["tensor", 4, "space"]]} : () -> ()

// The scan of each block, and before it the totals of the blocks before. From the end in a gradient: between flips.
// CHECK-LABEL: func.func @cumsum
// CHECK: [[PARTS:%[0-9]+]] = torch.aten.view %arg0, {{.*}} -> !torch.vtensor<[8,4,8],f32>
// CHECK-NEXT: [[INSIDE:%[0-9]+]] = torch.aten.cumsum [[PARTS]]
// CHECK-NEXT: [[TOTALS:%[0-9]+]] = torch.aten.slice.Tensor [[INSIDE]], {{.*}} -> !torch.vtensor<[8,4,1],f32>
// CHECK-NEXT: [[ACROSS:%[0-9]+]] = torch.aten.cumsum [[TOTALS]]
// CHECK-NEXT: torch.aten.slice.Tensor [[ACROSS]], {{.*}} -> !torch.vtensor<[8,3,1],f32>
// CHECK: [[BEFORE:%[0-9]+]] = torch.aten.cat {{.*}} -> !torch.vtensor<[8,4,1],f32>
// CHECK-NEXT: [[ALL:%[0-9]+]] = torch.aten.add.Tensor [[INSIDE]], [[BEFORE]]
// CHECK-NEXT: [[FORWARD:%[0-9]+]] = torch.aten.view [[ALL]]
// CHECK-NEXT: [[PARTS:%[0-9]+]] = torch.aten.view %arg0, {{.*}} -> !torch.vtensor<[8,4,8],f32>
// CHECK-NEXT: [[TURNED:%[0-9]+]] = torch.aten.flip [[PARTS]]
// CHECK-NEXT: [[SUMS:%[0-9]+]] = torch.aten.cumsum [[TURNED]]
// CHECK-NEXT: torch.aten.flip [[SUMS]]
// CHECK: torch.aten.cat
// CHECK-NOT: torch.aten.flip
// CHECK: return [[FORWARD]]
func.func @cumsum(%x: !torch.vtensor<[8,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>}) -> (!torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>) {
  %int1 = torch.constant.int 1
  %none = torch.constant.none
  %dims = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.cumsum %x, %int1, %none : !torch.vtensor<[8,32],f32>, !torch.int, !torch.none -> !torch.vtensor<[8,32],f32>
  %1 = torch.aten.flip %x, %dims : !torch.vtensor<[8,32],f32>, !torch.list<int> -> !torch.vtensor<[8,32],f32>
  %2 = torch.aten.cumsum %1, %int1, %none : !torch.vtensor<[8,32],f32>, !torch.int, !torch.none -> !torch.vtensor<[8,32],f32>
  %3 = torch.aten.flip %2, %dims : !torch.vtensor<[8,32],f32>, !torch.list<int> -> !torch.vtensor<[8,32],f32>
  return %0, %3 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["tensor", 4, "space"]]} : () -> ()

// Rows are whole on a device while they are sorted. The gradient reads the places as the sort makes them.
// CHECK-LABEL: func.func @sort
// CHECK: [[OUTSIDE:%[0-9]+]] = "dist.constraint"(%arg0) {{.*}}@mesh, {{\[\[\], \["tensor"\]\]}}
// CHECK-NEXT: [[ROWS:%[0-9]+]] = "dist.constraint"([[OUTSIDE]]) {{.*}}@mesh, {{\[\["tensor"\], \[\]\]}}
// CHECK-NEXT: %values, %indices = torch.aten.sort [[ROWS]]
// CHECK-NEXT: [[SORTED:%[0-9]+]] = "dist.constraint"(%values) {{.*}}@mesh, {{\[\["tensor"\], \[\]\]}}
// CHECK-NEXT: [[BACK:%[0-9]+]] = "dist.constraint"([[SORTED]]) {{.*}}@mesh, {{\[\[\], \["tensor"\]\]}}
// CHECK-NEXT: [[PLACES:%[0-9]+]] = "dist.constraint"(%indices) {{.*}}@mesh, {{\[\["tensor"\], \[\]\]}}
// CHECK-NEXT: torch.aten.add.Tensor [[BACK]], %arg0
// CHECK-NEXT: [[ZEROS:%[0-9]+]] = torch.aten.zeros
// CHECK-NEXT: [[INTO:%[0-9]+]] = "dist.constraint"([[ZEROS]]) {{.*}}@mesh, {{\[\["tensor"\], \[\]\]}}
// CHECK-NEXT: [[HERE:%[0-9]+]] = "dist.constraint"(%arg1) {{.*}}@mesh, {{\[\[\], \["tensor"\]\]}}
// CHECK-NEXT: [[GRAD:%[0-9]+]] = "dist.constraint"([[HERE]]) {{.*}}@mesh, {{\[\["tensor"\], \[\]\]}}
// CHECK-NEXT: torch.aten.scatter.src [[INTO]], {{.*}}, [[PLACES]], [[GRAD]]
func.func @sort(
    %x: !torch.vtensor<[8,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %g: !torch.vtensor<[8,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>}) -> (!torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>) {
  %int1 = torch.constant.int 1
  %int8 = torch.constant.int 8
  %int32 = torch.constant.int 32
  %false = torch.constant.bool false
  %none = torch.constant.none
  %shape = torch.prim.ListConstruct %int8, %int32 : (!torch.int, !torch.int) -> !torch.list<int>
  %values, %indices = torch.aten.sort %x, %int1, %false : !torch.vtensor<[8,32],f32>, !torch.int, !torch.bool -> !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],si64>
  %sum = torch.aten.add.Tensor %values, %x, %int1 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>, !torch.int -> !torch.vtensor<[8,32],f32>
  %zeros = torch.aten.zeros %shape, %none, %none, %none, %none : !torch.list<int>, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[8,32],f32>
  %back = torch.aten.scatter.src %zeros, %int1, %indices, %g : !torch.vtensor<[8,32],f32>, !torch.int, !torch.vtensor<[8,32],si64>, !torch.vtensor<[8,32],f32> -> !torch.vtensor<[8,32],f32>
  %other = torch.aten.add.Tensor %back, %x, %int1 : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>, !torch.int -> !torch.vtensor<[8,32],f32>
  return %sum, %other : !torch.vtensor<[8,32],f32>, !torch.vtensor<[8,32],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["tensor", 4, "space"]]} : () -> ()

// No other dim divides: the largest of each block, then the largest of those.
// CHECK-LABEL: func.func @topk
// CHECK: [[PARTS:%[0-9]+]] = torch.aten.view %arg0, {{.*}} -> !torch.vtensor<[3,4,8],f32>
// CHECK-NEXT: %values, %indices = torch.aten.topk [[PARTS]], {{.*}} -> !torch.vtensor<[3,4,2],f32>, !torch.vtensor<[3,4,2],si64>
// CHECK: [[NARROW:%[0-9]+]] = torch.aten._to_copy %indices
// CHECK: [[PLACES:%[0-9]+]] = torch.aten.add.Tensor [[NARROW]]
// CHECK-NEXT: [[CANDIDATES:%[0-9]+]] = torch.aten.view %values
// CHECK-NEXT: [[BEST:%.*]], [[WHICH:%.*]] = torch.aten.topk [[CANDIDATES]]
// CHECK-NEXT: [[FLAT:%[0-9]+]] = torch.aten.view [[PLACES]]
// CHECK-NEXT: torch.aten.gather [[FLAT]], {{.*}}, [[WHICH]]
func.func @topk(%x: !torch.vtensor<[3,32],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>}) -> (!torch.vtensor<[3,2],f32>, !torch.vtensor<[3,2],si64>) {
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %true = torch.constant.bool true
  %values, %indices = torch.aten.topk %x, %int2, %int1, %true, %true : !torch.vtensor<[3,32],f32>, !torch.int, !torch.int, !torch.bool, !torch.bool -> !torch.vtensor<[3,2],f32>, !torch.vtensor<[3,2],si64>
  return %values, %indices : !torch.vtensor<[3,2],f32>, !torch.vtensor<[3,2],si64>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["context", 4, "space"]]} : () -> ()

// 65 tokens do not divide: the batch is split from the concatenation on. So it is from a pad to 65 on.
// CHECK-LABEL: func.func @join
// CHECK: [[ONE:%[0-9]+]] = "dist.constraint"(%arg1) {{.*}}@mesh, {{\[\[\], \[\], \[\]\]}}
// CHECK-NEXT: [[FIRST:%[0-9]+]] = "dist.constraint"([[ONE]]) {{.*}}@mesh, {{\[\["context"\], \[\], \[\]\]}}
// CHECK-NEXT: [[TOKENS:%[0-9]+]] = "dist.constraint"(%arg0) {{.*}}@mesh, {{\[\[\], \["context"\], \[\]\]}}
// CHECK-NEXT: [[OTHERS:%[0-9]+]] = "dist.constraint"([[TOKENS]]) {{.*}}@mesh, {{\[\["context"\], \[\], \[\]\]}}
// CHECK-NEXT: [[LIST:%[0-9]+]] = torch.prim.ListConstruct [[FIRST]], [[OTHERS]]
// CHECK-NEXT: [[JOINED:%[0-9]+]] = torch.aten.cat [[LIST]]
// CHECK-NEXT: [[INSIDE:%[0-9]+]] = "dist.constraint"([[JOINED]]) {{.*}}@mesh, {{\[\["context"\], \[\], \[\]\]}}
// CHECK-NEXT: torch.aten.sin [[INSIDE]]
// CHECK: [[PADDED:%[0-9]+]] = torch.aten.constant_pad_nd [[OTHERS]]
// CHECK-NEXT: "dist.constraint"([[PADDED]]) {{.*}}@mesh, {{\[\["context"\], \[\], \[\]\]}}
func.func @join(
    %x: !torch.vtensor<[4,64,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["context"], []], []>},
    %cls: !torch.vtensor<[4,1,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], [], []], []>}) -> (!torch.vtensor<[4,65,8],f32>, !torch.vtensor<[4,65,8],f32>) {
  %zero = torch.constant.int 0
  %one = torch.constant.int 1
  %float = torch.constant.float 0.0
  %list = torch.prim.ListConstruct %cls, %x : (!torch.vtensor<[4,1,8],f32>, !torch.vtensor<[4,64,8],f32>) -> !torch.list<vtensor>
  %joined = torch.aten.cat %list, %one : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[4,65,8],f32>
  %made = torch.aten.sin %joined : !torch.vtensor<[4,65,8],f32> -> !torch.vtensor<[4,65,8],f32>
  %pad = torch.prim.ListConstruct %zero, %zero, %one, %zero : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %padded = torch.aten.constant_pad_nd %x, %pad, %float : !torch.vtensor<[4,64,8],f32>, !torch.list<int>, !torch.float -> !torch.vtensor<[4,65,8],f32>
  return %made, %padded : !torch.vtensor<[4,65,8],f32>, !torch.vtensor<[4,65,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["context", 4, "space"]]} : () -> ()

// One batch has only features besides, which the layers that follow sum over: the tokens are gathered.
// CHECK-LABEL: func.func @alone
// CHECK-NOT: dist.constraint
func.func @alone(
    %x: !torch.vtensor<[1,64,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["context"], []], []>},
    %cls: !torch.vtensor<[1,1,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], [], []], []>}) -> !torch.vtensor<[1,65,8],f32> {
  %one = torch.constant.int 1
  %list = torch.prim.ListConstruct %cls, %x : (!torch.vtensor<[1,1,8],f32>, !torch.vtensor<[1,64,8],f32>) -> !torch.list<vtensor>
  %joined = torch.aten.cat %list, %one : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[1,65,8],f32>
  return %joined : !torch.vtensor<[1,65,8],f32>
}
