// RUN: shardc-opt --split-input-file --pipeline dist-propagate,dist-insert-reshards,dist-partition %s | filecheck %s

// Calls that name shapes name local ones afterwards.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// 4 heads of 8 in all are 2 heads of 8 on a device; 2 rows of the batch are 1.
func.func @view(%x: !torch.vtensor<[2,16,32],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], [], ["tensor"]], []>}) -> (!torch.vtensor<[2,16,4,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], [], ["tensor"], []], []>}) {
  // CHECK-LABEL: func.func @view
  // CHECK-SAME: %arg0: !torch.vtensor<[1,16,16],f32>
  // CHECK: %0 = torch.prim.ListConstruct %int1, %int16, %int2, %int8 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  // CHECK-NEXT: %1 = torch.aten.view %arg0, %0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], [], ["tensor"], []], []>]} : !torch.vtensor<[1,16,16],f32>, !torch.list<int> -> !torch.vtensor<[1,16,2,8],f32>
  // CHECK-NEXT: return %1 : !torch.vtensor<[1,16,2,8],f32>
  %int2 = torch.constant.int 2
  %int4 = torch.constant.int 4
  %int8 = torch.constant.int 8
  %int16 = torch.constant.int 16
  %shape = torch.prim.ListConstruct %int2, %int16, %int4, %int8 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.view %x, %shape : !torch.vtensor<[2,16,32],f32>, !torch.list<int> -> !torch.vtensor<[2,16,4,8],f32>
  return %0 : !torch.vtensor<[2,16,4,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// An expanded dim is cut in the result only.
func.func @expand(%x: !torch.vtensor<[1,16],f32>, %y: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) -> (!torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) {
  // CHECK-LABEL: func.func @expand
  // CHECK-SAME: %arg0: !torch.vtensor<[1,16],f32>
  // CHECK-SAME: %arg1: !torch.vtensor<[4,16],f32>
  // CHECK: %0 = torch.prim.ListConstruct %int4, %int16 : (!torch.int, !torch.int) -> !torch.list<int>
  // CHECK: %1 = torch.aten.expand %arg0, %0, %false {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]} : !torch.vtensor<[1,16],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[4,16],f32>
  // CHECK-NEXT: %2 = torch.aten.mul.Tensor %1, %arg1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]} : !torch.vtensor<[4,16],f32>, !torch.vtensor<[4,16],f32> -> !torch.vtensor<[4,16],f32>
  // CHECK-NEXT: return %2 : !torch.vtensor<[4,16],f32>
  %false = torch.constant.bool false
  %int8 = torch.constant.int 8
  %int16 = torch.constant.int 16
  %shape = torch.prim.ListConstruct %int8, %int16 : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.expand %x, %shape, %false : !torch.vtensor<[1,16],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten.mul.Tensor %0, %y : !torch.vtensor<[8,16],f32>, !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  return %1 : !torch.vtensor<[8,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// Each device makes its own block: of a constant by its size, of a range by its size and offset.
func.func @created(%y: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> (!torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) {
  // CHECK-LABEL: func.func @created
  // CHECK-SAME: %arg0: !torch.vtensor<[4],f32>
  // CHECK: %0 = torch.prim.ListConstruct %int4 : (!torch.int) -> !torch.list<int>
  // CHECK: %1 = torch.aten.full %0, %float1.000000e00, %int6, %none, %cpu, %false {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"]], []>]} : !torch.list<int>, !torch.float, !torch.int, !torch.none, !torch.Device, !torch.bool -> !torch.vtensor<[4],f32>
  // CHECK-NEXT: %2 = torch.aten.arange %int4, %int7, %none, %cpu, %false : !torch.int, !torch.int, !torch.none, !torch.Device, !torch.bool -> !torch.vtensor<[4],f64>
  // CHECK-NEXT: %3 = "dist.offset"() {axes = ["data"], base = 0 : i64, extent = 4 : i64, scale = 1 : i64} : () -> !torch.int
  // CHECK-NEXT: %4 = torch.aten.add.Scalar %2, %3, %int1 : !torch.vtensor<[4],f64>, !torch.int, !torch.int -> !torch.vtensor<[4],f64>
  // CHECK-NEXT: %5 = torch.aten._to_copy %4, %int6, %none, %cpu, %none, %false, %none {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"]], []>]} : !torch.vtensor<[4],f64>, !torch.int, !torch.none, !torch.Device, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[4],f32>
  // CHECK-NEXT: %6 = torch.aten.mul.Tensor %1, %arg0 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"]], []>]} : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  // CHECK-NEXT: %7 = torch.aten.mul.Tensor %5, %6 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"]], []>]} : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  // CHECK-NEXT: return %7 : !torch.vtensor<[4],f32>
  %none = torch.constant.none
  %false = torch.constant.bool false
  %cpu = torch.constant.device "cpu"
  %f32 = torch.constant.int 6
  %int8 = torch.constant.int 8
  %one = torch.constant.float 1.000000e+00
  %size = torch.prim.ListConstruct %int8 : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.full %size, %one, %f32, %none, %cpu, %false : !torch.list<int>, !torch.float, !torch.int, !torch.none, !torch.Device, !torch.bool -> !torch.vtensor<[8],f32>
  %1 = torch.aten.arange %int8, %f32, %none, %cpu, %false : !torch.int, !torch.int, !torch.none, !torch.Device, !torch.bool -> !torch.vtensor<[8],f32>
  %2 = torch.aten.mul.Tensor %0, %y : !torch.vtensor<[8],f32>, !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  %3 = torch.aten.mul.Tensor %1, %2 : !torch.vtensor<[8],f32>, !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  return %3 : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// A part of a dim, and padding to a size without a common divisor, need the dim whole; other dims stay cut.
func.func @slice_and_pad(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], ["tensor"]], []>}) -> (!torch.vtensor<[8,4],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}, !torch.vtensor<[8,17],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) {
  // CHECK-LABEL: func.func @slice_and_pad
  // CHECK-SAME: %arg0: !torch.vtensor<[4,8],f32>
  // CHECK: %0 = torch.prim.ListConstruct %int1, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
  // CHECK: %1 = "dist.all_gather"(%arg0) {axes = ["tensor"], dim = 1 : i64, dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,16],f32>
  // CHECK-NEXT: %2 = torch.aten.slice.Tensor %1, %int1, %int0, %int4, %int1 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]} : !torch.vtensor<[4,16],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[4,4],f32>
  // CHECK-NEXT: %3 = torch.aten.constant_pad_nd %1, %0, %float0.000000e00 {dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]} : !torch.vtensor<[4,16],f32>, !torch.list<int>, !torch.float -> !torch.vtensor<[4,17],f32>
  // CHECK-NEXT: return %2, %3 : !torch.vtensor<[4,4],f32>, !torch.vtensor<[4,17],f32>
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %int4 = torch.constant.int 4
  %zero = torch.constant.float 0.000000e+00
  %0 = torch.aten.slice.Tensor %x, %int1, %int0, %int4, %int1 : !torch.vtensor<[8,16],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[8,4],f32>
  %pad = torch.prim.ListConstruct %int1, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.constant_pad_nd %x, %pad, %zero : !torch.vtensor<[8,16],f32>, !torch.list<int>, !torch.float -> !torch.vtensor<[8,17],f32>
  return %0, %1 : !torch.vtensor<[8,4],f32>, !torch.vtensor<[8,17],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// 16 columns padded to 18 are two blocks of 9: each device pads its 8 and takes its own, and none sends any.
func.func @pad_of_blocks(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], ["tensor"]], []>}) -> (!torch.vtensor<[8,18],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], ["tensor"]], []>}) {
  // CHECK-LABEL: func.func @pad_of_blocks
  // CHECK: torch.aten.constant_pad_nd %arg0, {{.*}} -> !torch.vtensor<[4,10],f32>
  // CHECK-NEXT: "dist.offset"() {axes = ["tensor"], base = 0 : i64, extent = 1 : i64, scale = 1 : i64} : () -> !torch.int
  // CHECK-NEXT: torch.operator "torch.aten.narrow_copy"{{.*}} -> !torch.vtensor<[4,9],f32>
  // CHECK-NEXT: return
  %int1 = torch.constant.int 1
  %zero = torch.constant.float 0.000000e+00
  %pad = torch.prim.ListConstruct %int1, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.constant_pad_nd %x, %pad, %zero : !torch.vtensor<[8,16],f32>, !torch.list<int>, !torch.float -> !torch.vtensor<[8,18],f32>
  return %0 : !torch.vtensor<[8,18],f32>
}
