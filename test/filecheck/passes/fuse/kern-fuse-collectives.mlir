// RUN: shardc-opt --kern-fuse --split-input-file %s | filecheck %s

// What reads a sum over ranks waits for it: the kernel stays behind the matmul that can run meanwhile. One that could run at
// once stays where it was as well, and its result need not be kept.
// CHECK-LABEL: func.func @waits
// CHECK: dist.all_reduce
// CHECK: torch.aten.mm
// CHECK: kern.ops = ["aten.neg", "aten.exp"]
// CHECK: kern.ops = ["aten.exp", "aten.tanh"]
"builtin.module"() ({
  "dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"]]} : () -> ()
  func.func @waits(%x: !torch.vtensor<[4,4],f32>) -> (!torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>) {
    %0 = "dist.all_reduce"(%x) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[4,4],f32>) -> !torch.vtensor<[4,4],f32>
    %1 = torch.aten.mm %x, %x : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %2 = torch.aten.t %0 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %3 = torch.aten.neg %2 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %4 = torch.aten.exp %3 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %5 = torch.aten.exp %x : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %6 = torch.aten.tanh %5 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    return %1, %4, %6 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>
  }
}) : () -> ()

// -----

// The chain that a matmul reads does not wait with the ops that read both it and the sum.
// CHECK-LABEL: func.func @apart
// CHECK: dist.all_reduce
// CHECK: kern.ops = ["aten.neg", "aten.exp"]
// CHECK: torch.aten.mm
// CHECK: torch.aten.mm
// CHECK: kern.ops = ["aten.mul.Tensor", "aten.add.Tensor"]
"builtin.module"() ({
  "dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"]]} : () -> ()
  func.func @apart(%x: !torch.vtensor<[4,4],f32>) -> (!torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>) {
    %one = torch.constant.int 1
    %0 = "dist.all_reduce"(%x) {axes = ["data"], reduction = "sum"} : (!torch.vtensor<[4,4],f32>) -> !torch.vtensor<[4,4],f32>
    %1 = torch.aten.neg %x : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %2 = torch.aten.exp %1 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %3 = torch.aten.mm %2, %2 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %4 = torch.aten.mm %3, %x : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %5 = torch.aten.mul.Tensor %0, %2 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
    %6 = torch.aten.add.Tensor %5, %2, %one : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>, !torch.int -> !torch.vtensor<[4,4],f32>
    return %4, %6 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,4],f32>
  }
}) : () -> ()
