// RUN: shardc-opt --torch-round-pads %s | filecheck %s
// RUN: shardc-opt --torch-round-pads --dist-pad %s | filecheck %s --check-prefix=PADDED

// 8 rows padded to 11 do not divide by 2 devices: they are made 12. Of these a slice takes 11, cut as 12 are: dist-pad
// computes 12, and the slice takes all of them.

"dist.mesh"() {sym_name = "mesh", axes = [["rows", 2, "space"]]} : () -> ()

// CHECK:      [[MADE:%[0-9]+]] = torch.aten.constant_pad_nd %arg0, {{.*}} -> !torch.vtensor<[1,1,12,4],f32>
// CHECK:      [[PART:%[0-9]+]] = torch.aten.slice.Tensor [[MADE]], {{.*}} -> !torch.vtensor<[1,1,11,4],f32>
// CHECK:      "dist.constraint"([[PART]])
// CHECK-SAME:   sharding = #dist.sharding<@mesh, {{\[}}["?"], ["?"], ["rows"], ["?"]], []>

// PADDED:     [[MADE:%[0-9]+]] = torch.aten.constant_pad_nd %arg0, {{.*}} -> !torch.vtensor<[1,1,12,4],f32>
// PADDED:     torch.aten.slice.Tensor [[MADE]], {{.*}} -> !torch.vtensor<[1,1,12,4],f32>
func.func @step(
    %x: !torch.vtensor<[1,1,8,4],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [[], [], ["rows"], []], []>}) -> !torch.vtensor<[1,1,11,4],f32> {
  %zero = torch.constant.int 0
  %one = torch.constant.int 1
  %two = torch.constant.int 2
  %pad = torch.prim.ListConstruct %zero, %zero, %one, %two : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.constant_pad_nd %x, %pad, %zero : !torch.vtensor<[1,1,8,4],f32>, !torch.list<int>, !torch.int -> !torch.vtensor<[1,1,11,4],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[1,1,11,4],f32> -> !torch.vtensor<[1,1,11,4],f32>
  return %1 : !torch.vtensor<[1,1,11,4],f32>
}
