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
