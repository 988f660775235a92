// REQUIRES: avx512
// RUN: shardc-opt --kern-extern --split-input-file %s | filecheck %s
// RUN: shardc-opt --kern-extern=library=aten --split-input-file %s | filecheck %s --check-prefix=ATEN
// RUN: shardc-opt --kern-extern=rounding=eager --split-input-file %s | filecheck %s --check-prefix=EAGER
// ATEN-NOT: kern.extern

// A residual is added inside. With eager's rounding it is not, for bf16.
// CHECK-LABEL: func.func @residual
// CHECK: torch.prim.TupleConstruct %arg0, %arg2, %arg1
// CHECK-NEXT: "kern.extern"(%{{.*}}) {arguments = {attr = "add"}, reads = ["X", "other", "W"], target = "mkldnn._linear_pointwise.binary"}
// CHECK-NOT: torch.aten
// EAGER-LABEL: func.func @residual
// EAGER: attr = "none"
// EAGER: torch.aten.add.Tensor
func.func @residual(%x: !torch.vtensor<[6,8],bf16>, %w: !torch.vtensor<[4,8],bf16>, %r: !torch.vtensor<[6,4],bf16>) -> !torch.vtensor<[6,4],bf16> {
  %one = torch.constant.int 1
  %t = torch.aten.t %w : !torch.vtensor<[4,8],bf16> -> !torch.vtensor<[8,4],bf16>
  %0 = torch.aten.mm %x, %t : !torch.vtensor<[6,8],bf16>, !torch.vtensor<[8,4],bf16> -> !torch.vtensor<[6,4],bf16>
  %1 = torch.aten.add.Tensor %r, %0, %one : !torch.vtensor<[6,4],bf16>, !torch.vtensor<[6,4],bf16>, !torch.int -> !torch.vtensor<[6,4],bf16>
  return %1 : !torch.vtensor<[6,4],bf16>
}
