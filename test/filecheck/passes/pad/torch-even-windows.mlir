// RUN: shardc-opt --torch-even-windows %s | filecheck %s

// 16 samples make 7 windows of 4, 2 apart. Cut in two, 8 windows of 16 samples are computed, of which the last ends
// behind the samples; a slice takes 7.

"dist.mesh"() {sym_name = "mesh", axes = [["context", 2, "space"]]} : () -> ()

// CHECK:      "dist.constraint"(%{{.*}}) {sharding = #dist.sharding<@mesh, {{\[\[}}"?"], ["?"], ["context"]], []>}
// CHECK-SAME: !torch.vtensor<[1,1,16],f32>
// CHECK:      "torch.shardc.padded_convolution"
// CHECK-SAME: -> !torch.vtensor<[1,3,8],f32>
// CHECK:      torch.aten.slice.Tensor
// CHECK-SAME: -> !torch.vtensor<[1,3,7],f32>
// CHECK-NOT:  torch.aten.convolution
func.func @step(
    %x: !torch.vtensor<[1,1,16],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [[], [], ["context"]], []>},
    %w: !torch.vtensor<[3,1,4],f32> {dist.role = "param", dist.name = "w", dist.sharding = #dist.sharding<@mesh, [[], [], []], []>}) -> !torch.vtensor<[1,3,7],f32> {
  %zero = torch.constant.int 0
  %one = torch.constant.int 1
  %two = torch.constant.int 2
  %false = torch.constant.bool false
  %none = torch.constant.none
  %twos = torch.prim.ListConstruct %two : (!torch.int) -> !torch.list<int>
  %zeros = torch.prim.ListConstruct %zero : (!torch.int) -> !torch.list<int>
  %ones = torch.prim.ListConstruct %one : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.convolution %x, %w, %none, %twos, %zeros, %ones, %false, %zeros, %one : !torch.vtensor<[1,1,16],f32>, !torch.vtensor<[3,1,4],f32>, !torch.none, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int -> !torch.vtensor<[1,3,7],f32>
  return %0 : !torch.vtensor<[1,3,7],f32>
}
