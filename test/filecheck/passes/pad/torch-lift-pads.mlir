// RUN: shardc-opt --split-input-file --torch-lift-pads %s | filecheck %s

// A convolution has the pad before it as its own where a plan cuts the image: the padded image of 9 rows has no equal
// blocks.

"dist.mesh"() {sym_name = "mesh", axes = [["rows", 2, "space"]]} : () -> ()

// CHECK-NOT: torch.aten.constant_pad_nd
// CHECK:     shardc.padded_convolution
// CHECK-NOT: torch.aten.convolution
func.func @step(
    %x: !torch.vtensor<[1,1,8,8],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [[], [], ["rows"], []], []>},
    %w: !torch.vtensor<[1,1,3,3],f32> {dist.role = "param", dist.name = "w", dist.sharding = #dist.sharding<@mesh, [[], [], [], []], []>}) -> !torch.vtensor<[1,1,4,4],f32> {
  %zero = torch.constant.int 0
  %one = torch.constant.int 1
  %two = torch.constant.int 2
  %false = torch.constant.bool false
  %none = torch.constant.none
  %pad = torch.prim.ListConstruct %zero, %one, %zero, %one : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.constant_pad_nd %x, %pad, %zero : !torch.vtensor<[1,1,8,8],f32>, !torch.list<int>, !torch.int -> !torch.vtensor<[1,1,9,9],f32>
  %twos = torch.prim.ListConstruct %two, %two : (!torch.int, !torch.int) -> !torch.list<int>
  %zeros = torch.prim.ListConstruct %zero, %zero : (!torch.int, !torch.int) -> !torch.list<int>
  %ones = torch.prim.ListConstruct %one, %one : (!torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.convolution %0, %w, %none, %twos, %zeros, %ones, %false, %zeros, %one : !torch.vtensor<[1,1,9,9],f32>, !torch.vtensor<[1,1,3,3],f32>, !torch.none, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int -> !torch.vtensor<[1,1,4,4],f32>
  return %1 : !torch.vtensor<[1,1,4,4],f32>
}

// -----

// A convolution of a sequence that sees no later token: its pad is two zeros before the first.

"dist.mesh"() {sym_name = "mesh", axes = [["context", 2, "space"]]} : () -> ()

// CHECK-NOT: torch.aten.constant_pad_nd
// CHECK:     shardc.padded_convolution{{.*}} -> !torch.vtensor<[1,1,8],f32>
// CHECK-NOT: torch.aten.convolution
func.func @step(
    %x: !torch.vtensor<[1,1,8],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [[], [], ["context"]], []>},
    %w: !torch.vtensor<[1,1,3],f32> {dist.role = "param", dist.name = "w", dist.sharding = #dist.sharding<@mesh, [[], [], []], []>}) -> !torch.vtensor<[1,1,8],f32> {
  %zero = torch.constant.int 0
  %one = torch.constant.int 1
  %two = torch.constant.int 2
  %false = torch.constant.bool false
  %none = torch.constant.none
  %pad = torch.prim.ListConstruct %two, %zero : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.constant_pad_nd %x, %pad, %zero : !torch.vtensor<[1,1,8],f32>, !torch.list<int>, !torch.int -> !torch.vtensor<[1,1,10],f32>
  %zeros = torch.prim.ListConstruct %zero : (!torch.int) -> !torch.list<int>
  %ones = torch.prim.ListConstruct %one : (!torch.int) -> !torch.list<int>
  %1 = torch.aten.convolution %0, %w, %none, %ones, %zeros, %ones, %false, %zeros, %one : !torch.vtensor<[1,1,10],f32>, !torch.vtensor<[1,1,3],f32>, !torch.none, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int -> !torch.vtensor<[1,1,8],f32>
  return %1 : !torch.vtensor<[1,1,8],f32>
}

// -----

// So has a maximum; zeros are not the least number. The gradient of the image, which a convolution reads too, is
// summed after the padding is removed.

"dist.mesh"() {sym_name = "mesh", axes = [["rows", 2, "space"]]} : () -> ()

// CHECK:     func.func @step
// CHECK-NOT: torch.aten.constant_pad_nd
// CHECK:     [[POOL:%.+]]:2 = torch.operator "torch.shardc.padded_max_pool"(%arg0
// CHECK:     [[CONV:%.+]]:3 = torch.operator "torch.shardc.padded_convolution_backward"
// CHECK:     [[BACK:%.+]] = torch.operator "torch.shardc.padded_max_pool_backward"({{.*}}, [[POOL]]#1)
// CHECK:     [[SUM:%.+]] = torch.aten.add.Tensor [[CONV]]#0, [[BACK]]
// CHECK-SAME: -> !torch.vtensor<[1,1,8,8],f32>
// CHECK:     return [[POOL]]#0, [[SUM]]
func.func @step(
    %x: !torch.vtensor<[1,1,8,8],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [[], [], ["rows"], []], []>},
    %w: !torch.vtensor<[1,1,3,3],f32> {dist.role = "param", dist.name = "w", dist.sharding = #dist.sharding<@mesh, [[], [], [], []], []>},
    %g: !torch.vtensor<[1,1,4,4],f32> {dist.role = "input", dist.name = "g", dist.sharding = #dist.sharding<@mesh, [[], [], [], []], []>}) -> (!torch.vtensor<[1,1,4,4],f32>, !torch.vtensor<[1,1,8,8],f32>) {
  %zero = torch.constant.int 0
  %one = torch.constant.int 1
  %minus = torch.constant.int -1
  %two = torch.constant.int 2
  %three = torch.constant.int 3
  %false = torch.constant.bool false
  %true = torch.constant.bool true
  %pad = torch.prim.ListConstruct %zero, %one, %zero, %one : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %crop = torch.prim.ListConstruct %zero, %minus, %zero, %minus : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.constant_pad_nd %x, %pad, %zero : !torch.vtensor<[1,1,8,8],f32>, !torch.list<int>, !torch.int -> !torch.vtensor<[1,1,9,9],f32>
  %threes = torch.prim.ListConstruct %three, %three : (!torch.int, !torch.int) -> !torch.list<int>
  %twos = torch.prim.ListConstruct %two, %two : (!torch.int, !torch.int) -> !torch.list<int>
  %zeros = torch.prim.ListConstruct %zero, %zero : (!torch.int, !torch.int) -> !torch.list<int>
  %ones = torch.prim.ListConstruct %one, %one : (!torch.int, !torch.int) -> !torch.list<int>
  %sizes = torch.prim.ListConstruct %zero : (!torch.int) -> !torch.list<int>
  %mask = torch.prim.ListConstruct %true, %false, %false : (!torch.bool, !torch.bool, !torch.bool) -> !torch.list<bool>
  %made, %places = torch.aten.max_pool2d_with_indices %0, %threes, %twos, %zeros, %ones, %false : !torch.vtensor<[1,1,9,9],f32>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool -> !torch.vtensor<[1,1,4,4],f32>, !torch.vtensor<[1,1,4,4],si64>
  %1, %2, %3 = torch.aten.convolution_backward %g, %0, %w, %sizes, %twos, %zeros, %ones, %false, %zeros, %one, %mask : !torch.vtensor<[1,1,4,4],f32>, !torch.vtensor<[1,1,9,9],f32>, !torch.vtensor<[1,1,3,3],f32>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int, !torch.list<bool> -> !torch.vtensor<[1,1,9,9],f32>, !torch.none, !torch.none
  %4 = torch.aten.max_pool2d_with_indices_backward %g, %0, %threes, %twos, %zeros, %ones, %false, %places : !torch.vtensor<[1,1,4,4],f32>, !torch.vtensor<[1,1,9,9],f32>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.vtensor<[1,1,4,4],si64> -> !torch.vtensor<[1,1,9,9],f32>
  %5 = torch.aten.add.Tensor %1, %4, %one : !torch.vtensor<[1,1,9,9],f32>, !torch.vtensor<[1,1,9,9],f32>, !torch.int -> !torch.vtensor<[1,1,9,9],f32>
  %6 = torch.aten.constant_pad_nd %5, %crop, %zero : !torch.vtensor<[1,1,9,9],f32>, !torch.list<int>, !torch.int -> !torch.vtensor<[1,1,8,8],f32>
  return %made, %6 : !torch.vtensor<[1,1,4,4],f32>, !torch.vtensor<[1,1,8,8],f32>
}
