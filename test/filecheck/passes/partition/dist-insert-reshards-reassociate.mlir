// RUN: shardc-opt --split-input-file --pipeline dist-propagate,dist-insert-reshards %s | filecheck %s

// Autograd adds the terms of a gradient in the order in which they come: ((residual + dv) + dk). The residual is whole,
// the others are partial over "tensor". They are added to one another first, and reduced once.

"dist.mesh"() {sym_name = "mesh", axes = [["tensor", 2, "space"]]} : () -> ()

func.func @gradient(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %residual: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], []>},
    %a: !torch.vtensor<[16,16],f32>, %b: !torch.vtensor<[16,16],f32>) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @gradient
  // CHECK: %0 = torch.aten.mm %arg0, %arg2
  // CHECK-NEXT: %1 = torch.aten.mm %arg0, %arg3
  // CHECK-NEXT: %2 = torch.aten.add.Tensor %0, %1, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "tensor"]]>]}
  // CHECK-NEXT: %3 = "dist.reshard"(%2) {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]
  // CHECK-NEXT: %4 = torch.aten.add.Tensor %arg1, %3, %int1
  // CHECK-NEXT: return %4
  %int1 = torch.constant.int 1
  %dv = torch.aten.mm %x, %a : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %0 = torch.aten.add.Tensor %residual, %dv, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  %dk = torch.aten.mm %x, %b : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten.add.Tensor %0, %dk, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  return %1 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["tensor", 2, "space"]]} : () -> ()

// An addition with a factor stays where it is, with its factor.
func.func @scaled(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %residual: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], []>},
    %a: !torch.vtensor<[16,16],f32>, %b: !torch.vtensor<[16,16],f32>) -> !torch.vtensor<[8,16],f32> {
  // CHECK-LABEL: func.func @scaled
  // CHECK: %0 = torch.aten.mm %arg0, %arg2
  // CHECK-NEXT: %1 = "dist.reshard"(%0)
  // CHECK-NEXT: %2 = torch.aten.add.Tensor %arg1, %1, %int1
  // CHECK-NEXT: %3 = torch.aten.mm %arg0, %arg3
  // CHECK-NEXT: %4 = "dist.reshard"(%3)
  // CHECK-NEXT: %5 = torch.aten.add.Tensor %2, %4, %int2
  // CHECK-NEXT: return %5
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %dv = torch.aten.mm %x, %a : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %0 = torch.aten.add.Tensor %residual, %dv, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  %dk = torch.aten.mm %x, %b : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten.add.Tensor %0, %dk, %int2 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  return %1 : !torch.vtensor<[8,16],f32>
}
