// RUN: shardc-opt --split-input-file --dist-combine %s | filecheck %s
// RUN: shardc-opt --split-input-file --dist-combine=bucket-bytes=32 %s | filecheck %s --check-prefix=SMALL

// Collectives of one kind, axes, dtype and phase are packed into one, sent when all operands are there and before any
// result is needed.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Reductions: operands flat, one after the other. In buckets of 32 bytes there is no room for both.
// SMALL-LABEL: func.func @all_reduce
// SMALL: "dist.all_reduce"(%arg0)
// SMALL-NEXT: "dist.all_reduce"(%arg1)
// SMALL-LABEL: func.func @all_gather
func.func @all_reduce(%a: !torch.vtensor<[2,4],f32>, %b: !torch.vtensor<[3],f32>) -> (!torch.vtensor<[2,4],f32>, !torch.vtensor<[3],f32>) {
  // CHECK-LABEL: func.func @all_reduce
  // CHECK-SAME: %arg0: !torch.vtensor<[2,4],f32>
  // CHECK-SAME: %arg1: !torch.vtensor<[3],f32>
  // CHECK: %2 = torch.aten.reshape %arg0, %0 : !torch.vtensor<[2,4],f32>, !torch.list<int> -> !torch.vtensor<[8],f32>
  // CHECK: %4 = torch.aten.cat %3, %int0 : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[11],f32>
  // CHECK-NEXT: %5 = "dist.all_reduce"(%4) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[11],f32>) -> !torch.vtensor<[11],f32>
  // CHECK-NEXT: %6 = torch.aten.slice.Tensor %5, %int0, %int0, %int8, %int1 : !torch.vtensor<[11],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[8],f32>
  // CHECK-NEXT: %7 = torch.aten.reshape %6, %1 : !torch.vtensor<[8],f32>, !torch.list<int> -> !torch.vtensor<[2,4],f32>
  // CHECK-NEXT: %8 = torch.aten.slice.Tensor %5, %int0, %int8, %int11, %int1 : !torch.vtensor<[11],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[3],f32>
  // CHECK-NEXT: return %7, %8 : !torch.vtensor<[2,4],f32>, !torch.vtensor<[3],f32>
  %0 = "dist.all_reduce"(%a) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[2,4],f32>) -> !torch.vtensor<[2,4],f32>
  %1 = "dist.all_reduce"(%b) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[3],f32>) -> !torch.vtensor<[3],f32>
  return %0, %1 : !torch.vtensor<[2,4],f32>, !torch.vtensor<[3],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Gathers: flat blocks; the rows of the result, one from each device, are taken apart.
func.func @all_gather(%a: !torch.vtensor<[2,4],f32>, %b: !torch.vtensor<[3],f32>) -> (!torch.vtensor<[4,4],f32>, !torch.vtensor<[6],f32>) {
  // CHECK-LABEL: func.func @all_gather
  // CHECK-SAME: %arg0: !torch.vtensor<[2,4],f32>
  // CHECK-SAME: %arg1: !torch.vtensor<[3],f32>
  // CHECK: %4 = torch.aten.reshape %arg0, %0 : !torch.vtensor<[2,4],f32>, !torch.list<int> -> !torch.vtensor<[8],f32>
  // CHECK: %6 = torch.aten.cat %5, %int0 : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[11],f32>
  // CHECK-NEXT: %7 = "dist.all_gather"(%6) {axes = ["data"], dim = 0 : i64} : (!torch.vtensor<[11],f32>) -> !torch.vtensor<[22],f32>
  // CHECK-NEXT: %8 = torch.aten.reshape %7, %1 : !torch.vtensor<[22],f32>, !torch.list<int> -> !torch.vtensor<[2,11],f32>
  // CHECK-NEXT: %9 = torch.aten.slice.Tensor %8, %int1, %int8, %int11, %int1 : !torch.vtensor<[2,11],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[2,3],f32>
  // CHECK-NEXT: %10 = torch.aten.reshape %9, %3 : !torch.vtensor<[2,3],f32>, !torch.list<int> -> !torch.vtensor<[6],f32>
  // CHECK-NEXT: %11 = torch.aten.slice.Tensor %8, %int1, %int0, %int8, %int1 : !torch.vtensor<[2,11],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[2,8],f32>
  // CHECK-NEXT: %12 = torch.aten.reshape %11, %2 : !torch.vtensor<[2,8],f32>, !torch.list<int> -> !torch.vtensor<[4,4],f32>
  // CHECK-NEXT: return %12, %10 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[6],f32>
  %0 = "dist.all_gather"(%a) {axes = ["data"], dim = 0} : (!torch.vtensor<[2,4],f32>) -> !torch.vtensor<[4,4],f32>
  %1 = "dist.all_gather"(%b) {axes = ["data"], dim = 0} : (!torch.vtensor<[3],f32>) -> !torch.vtensor<[6],f32>
  return %0, %1 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[6],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Scatters: operands side by side as rows, one for each device.
func.func @reduce_scatter(%a: !torch.vtensor<[2,4],f32>, %b: !torch.vtensor<[6],f32>) -> (!torch.vtensor<[1,4],f32>, !torch.vtensor<[3],f32>) {
  // CHECK-LABEL: func.func @reduce_scatter
  // CHECK-SAME: %arg0: !torch.vtensor<[2,4],f32>
  // CHECK-SAME: %arg1: !torch.vtensor<[6],f32>
  // CHECK: %2 = torch.aten.reshape %arg1, %0 : !torch.vtensor<[6],f32>, !torch.list<int> -> !torch.vtensor<[2,3],f32>
  // CHECK: %4 = torch.aten.cat %3, %int1 : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[2,7],f32>
  // CHECK-NEXT: %5 = "dist.reduce_scatter"(%4) {axes = ["data"], dim = 0 : i64, reduction = "sum"} : (!torch.vtensor<[2,7],f32>) -> !torch.vtensor<[1,7],f32>
  // CHECK-NEXT: %6 = torch.aten.slice.Tensor %5, %int1, %int4, %int7, %int1 : !torch.vtensor<[1,7],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[1,3],f32>
  // CHECK-NEXT: %7 = torch.aten.reshape %6, %1 : !torch.vtensor<[1,3],f32>, !torch.list<int> -> !torch.vtensor<[3],f32>
  // CHECK-NEXT: %8 = torch.aten.slice.Tensor %5, %int1, %int0, %int4, %int1 : !torch.vtensor<[1,7],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[1,4],f32>
  // CHECK-NEXT: return %8, %7 : !torch.vtensor<[1,4],f32>, !torch.vtensor<[3],f32>
  %0 = "dist.reduce_scatter"(%a) {axes = ["data"], dim = 0, reduction = "sum"} : (!torch.vtensor<[2,4],f32>) -> !torch.vtensor<[1,4],f32>
  %1 = "dist.reduce_scatter"(%b) {axes = ["data"], dim = 0, reduction = "sum"} : (!torch.vtensor<[6],f32>) -> !torch.vtensor<[3],f32>
  return %0, %1 : !torch.vtensor<[1,4],f32>, !torch.vtensor<[3],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Left alone: other axes, another dtype, another reduction, and one whose operand waits for the first one's result.
func.func @apart(%a: !torch.vtensor<[4],f32>, %b: !torch.vtensor<[4],bf16>) -> (!torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[4],bf16>, !torch.vtensor<[4],f32>) {
  // CHECK-LABEL: func.func @apart
  // CHECK-SAME: %arg0: !torch.vtensor<[4],f32>
  // CHECK-SAME: %arg1: !torch.vtensor<[4],bf16>
  // CHECK: %0 = "dist.all_reduce"(%arg0) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  // CHECK-NEXT: %1 = "dist.all_reduce"(%arg0) {axes = ["tensor"], reduction = "sum"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  // CHECK-NEXT: %2 = "dist.all_reduce"(%arg1) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[4],bf16>) -> !torch.vtensor<[4],bf16>
  // CHECK-NEXT: %3 = "dist.all_reduce"(%arg0) {axes = ["data"], reduction = "max"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  // CHECK-NEXT: %4 = torch.aten.mul.Tensor %0, %3 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  // CHECK-NEXT: %5 = "dist.all_reduce"(%4) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  // CHECK-NEXT: return %5, %1, %2, %4 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[4],bf16>, !torch.vtensor<[4],f32>
  %0 = "dist.all_reduce"(%a) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  %1 = "dist.all_reduce"(%a) {axes = ["tensor"], reduction = "sum"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  %2 = "dist.all_reduce"(%b) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[4],bf16>) -> !torch.vtensor<[4],bf16>
  %3 = "dist.all_reduce"(%a) {axes = ["data"], reduction = "max"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  %4 = torch.aten.mul.Tensor %0, %3 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %5 = "dist.all_reduce"(%4) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  return %5, %1, %2, %4 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[4],bf16>, !torch.vtensor<[4],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// What follows a reduction gives way to it: the scatters are packed, then the all-reduces of their results. The parts of
// a packed one are taken where they are read, so that nobody waits for it before.
func.func @chains(%a: !torch.vtensor<[4],f32>, %b: !torch.vtensor<[4],f32>) -> (!torch.vtensor<[2],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[2],f32>) {
  // CHECK-LABEL: func.func @chains
  // CHECK-SAME: %arg0: !torch.vtensor<[4],f32>
  // CHECK-SAME: %arg1: !torch.vtensor<[4],f32>
  // CHECK-NOT: "dist.
  // CHECK: %[[G:[0-9]+]] = torch.aten.mul.Tensor %arg0, %arg1
  // CHECK: %[[ROWS:[0-9]+]] = torch.aten.cat {{.*}} -> !torch.vtensor<[2,4],f32>
  // CHECK-NEXT: %[[OWN:[0-9]+]] = "dist.reduce_scatter"(%[[ROWS]]) {axes = ["data"], dim = 0 : i64, reduction = "sum"} : (!torch.vtensor<[2,4],f32>) -> !torch.vtensor<[1,4],f32>
  // CHECK-NEXT: torch.aten.slice.Tensor %[[OWN]]
  // CHECK: torch.aten.slice.Tensor %[[OWN]]
  // CHECK: %[[FLAT:[0-9]+]] = torch.aten.cat {{.*}} -> !torch.vtensor<[4],f32>
  // CHECK-NEXT: %[[SUM:[0-9]+]] = "dist.all_reduce"(%[[FLAT]]) {axes = ["tensor"], reduction = "sum"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  // CHECK-NEXT: torch.aten.neg %[[G]]
  // CHECK-NEXT: torch.aten.slice.Tensor %[[SUM]]
  // CHECK-NOT: "dist.
  // CHECK: return
  %0 = "dist.reduce_scatter"(%a) {axes = ["data"], dim = 0, reduction = "sum"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[2],f32>
  %1 = "dist.all_reduce"(%0) {axes = ["tensor"], reduction = "sum"} : (!torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>
  %2 = torch.aten.mul.Tensor %a, %b : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %3 = "dist.reduce_scatter"(%2) {axes = ["data"], dim = 0, reduction = "sum"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[2],f32>
  %4 = "dist.all_reduce"(%3) {axes = ["tensor"], reduction = "sum"} : (!torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>
  %5 = torch.aten.neg %2 : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %6 = torch.aten.mul.Tensor %1, %4 : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
  return %6, %5, %4 : !torch.vtensor<[2],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[2],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Nothing is sent after what needs it: the first chain's result is read before the second one's operand is there.
func.func @chains_apart(%a: !torch.vtensor<[4],f32>) -> !torch.vtensor<[2],f32> {
  // CHECK-LABEL: func.func @chains_apart
  // CHECK: %0 = "dist.reduce_scatter"(%arg0) {axes = ["data"]
  // CHECK-NEXT: %1 = "dist.all_reduce"(%0) {axes = ["tensor"]
  // CHECK-NEXT: %2 = torch.aten.neg %1
  // CHECK-NOT: "dist.
  // CHECK: %4 = torch.aten.cat
  // CHECK-NEXT: %5 = "dist.reduce_scatter"(%4) {axes = ["data"]
  // CHECK-NEXT: %6 = "dist.all_reduce"(%5) {axes = ["tensor"]
  // CHECK-NEXT: return %6
  %int0 = torch.constant.int 0
  %0 = "dist.reduce_scatter"(%a) {axes = ["data"], dim = 0, reduction = "sum"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[2],f32>
  %1 = "dist.all_reduce"(%0) {axes = ["tensor"], reduction = "sum"} : (!torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
  %list = torch.prim.ListConstruct %2, %2 : (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>) -> !torch.list<vtensor>
  %3 = torch.aten.cat %list, %int0 : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[4],f32>
  %4 = "dist.reduce_scatter"(%3) {axes = ["data"], dim = 0, reduction = "sum"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[2],f32>
  %5 = "dist.all_reduce"(%4) {axes = ["tensor"], reduction = "sum"} : (!torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>
  return %5 : !torch.vtensor<[2],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Slices move behind a bucket: gradients whose updates are sharded are summed together.
func.func @slices(%a: !torch.vtensor<[4],f32>, %b: !torch.vtensor<[6],f32>) -> (!torch.vtensor<[2],f32>, !torch.vtensor<[3],f32>) {
  // CHECK-LABEL: func.func @slices
  // CHECK: %[[ALL:.*]] = "dist.all_reduce"(%{{.*}}) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[10],f32>)
  // CHECK-NOT: "dist.all_reduce"
  // CHECK-DAG: "dist.slice"(%{{.*}}) {axes = ["tensor"], dim = 0 : i64} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[2],f32>
  // CHECK-DAG: "dist.slice"(%{{.*}}) {axes = ["tensor"], dim = 0 : i64} : (!torch.vtensor<[6],f32>) -> !torch.vtensor<[3],f32>
  %int1 = torch.constant.int 1
  %0 = "dist.all_reduce"(%a) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  %1 = "dist.slice"(%0) {axes = ["tensor"], dim = 0 : i64} : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[2],f32>
  %2 = torch.aten.add.Tensor %b, %b, %int1 : !torch.vtensor<[6],f32>, !torch.vtensor<[6],f32>, !torch.int -> !torch.vtensor<[6],f32>
  %3 = "dist.all_reduce"(%2) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[6],f32>) -> !torch.vtensor<[6],f32>
  %4 = "dist.slice"(%3) {axes = ["tensor"], dim = 0 : i64} : (!torch.vtensor<[6],f32>) -> !torch.vtensor<[3],f32>
  return %1, %4 : !torch.vtensor<[2],f32>, !torch.vtensor<[3],f32>
}
