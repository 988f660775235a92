// RUN: shardc-opt --pipeline dist-propagate,dist-insert-reshards %s | filecheck %s

// Two blocks of a transformer that adds attention and MLP to the residual at once: the first sum, which is read twice, is
// a term of the second. Each is reduced once.

"dist.mesh"() {sym_name = "mesh", axes = [["tensor", 2, "space"]]} : () -> ()

func.func @blocks(
    %x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>},
    %residual: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], []>},
    %a: !torch.vtensor<[16,16],f32>, %b: !torch.vtensor<[16,16],f32>)
    -> (!torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>) {
  // CHECK-LABEL: func.func @blocks
  // CHECK: %0 = torch.aten.mm %arg0, %arg2
  // CHECK-NEXT: %1 = torch.aten.mm %arg0, %arg3
  // CHECK-NEXT: %2 = torch.aten.add.Tensor %0, %1, %int1
  // CHECK-NEXT: %3 = "dist.reshard"(%2)
  // CHECK-NEXT: %4 = torch.aten.add.Tensor %arg1, %3, %int1
  // CHECK-NEXT: %5 = torch.aten.relu %4
  // CHECK-NEXT: %6 = torch.aten.mm %arg0, %arg3
  // CHECK-NEXT: %7 = torch.aten.mm %arg0, %arg2
  // CHECK-NEXT: %8 = torch.aten.add.Tensor %6, %7, %int1
  // CHECK-NEXT: %9 = "dist.reshard"(%8)
  // CHECK-NEXT: %10 = torch.aten.add.Tensor %4, %9, %int1
  // CHECK-NEXT: return %5, %10
  %int1 = torch.constant.int 1
  %attention = torch.aten.mm %x, %a : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %0 = torch.aten.add.Tensor %residual, %attention, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  %mlp = torch.aten.mm %x, %b : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten.add.Tensor %0, %mlp, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  %read = torch.aten.relu %1 : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  %attention2 = torch.aten.mm %x, %b : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %2 = torch.aten.add.Tensor %1, %attention2, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  %mlp2 = torch.aten.mm %x, %a : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %3 = torch.aten.add.Tensor %2, %mlp2, %int1 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>, !torch.int -> !torch.vtensor<[8,16],f32>
  return %read, %3 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32>
}
