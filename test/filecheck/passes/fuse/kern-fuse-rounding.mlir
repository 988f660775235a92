// RUN: shardc-opt --kern-fuse %s | filecheck %s
// RUN: shardc-opt --pipeline 'kern-fuse{rounding=eager}' %s | filecheck %s --check-prefix=EAGER

// 16-bit floats are computed in f32, and rounded once at the end, or after every op.
// CHECK: arith.extf
// CHECK: arith.mulf
// CHECK-NOT: arith.truncf
// CHECK: arith.addf
// CHECK-NEXT: arith.truncf
// CHECK-NEXT: linalg.yield
// EAGER: arith.mulf
// EAGER-NEXT: arith.truncf
// EAGER-NEXT: arith.extf
// EAGER: arith.addf
// EAGER-NEXT: arith.truncf
// EAGER-NEXT: linalg.yield
func.func @f(%x: !torch.vtensor<[4,8],bf16>, %y: !torch.vtensor<[4,8],bf16>) -> !torch.vtensor<[4,8],bf16> {
  %one = torch.constant.int 1
  %0 = torch.aten.mul.Tensor %x, %y : !torch.vtensor<[4,8],bf16>, !torch.vtensor<[4,8],bf16> -> !torch.vtensor<[4,8],bf16>
  %1 = torch.aten.add.Tensor %0, %y, %one : !torch.vtensor<[4,8],bf16>, !torch.vtensor<[4,8],bf16>, !torch.int -> !torch.vtensor<[4,8],bf16>
  return %1 : !torch.vtensor<[4,8],bf16>
}
