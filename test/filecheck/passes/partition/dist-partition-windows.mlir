// RUN: shardc-opt --split-input-file --dist-propagate --dist-insert-reshards --dist-partition %s | filecheck %s

"dist.mesh"() {sym_name = "mesh", axes = [["h", 4, "space"]]} : () -> ()

// Windows of 3 reach one row into either neighbour's block; beyond the outer edge nobody sends, which leaves zeros.
// CHECK-LABEL: func.func @convolution
// CHECK: [[LAST:%[0-9]+]] = torch.aten.slice.Tensor %arg0, {{.*}} -> !torch.vtensor<[1,2,1,8],f32>
// CHECK-NEXT: [[ABOVE:%[0-9]+]] = "dist.exchange"([[LAST]]) {axes = ["h"], sources = [-1, 0, 1, 2]}
// CHECK-NEXT: [[FIRST:%[0-9]+]] = torch.aten.slice.Tensor %arg0
// CHECK-NEXT: [[BELOW:%[0-9]+]] = "dist.exchange"([[FIRST]]) {axes = ["h"], sources = [1, 2, 3, -1]}
// CHECK-NEXT: [[PARTS:%[0-9]+]] = torch.prim.ListConstruct [[ABOVE]], %arg0, [[BELOW]]
// CHECK-NEXT: [[BLOCK:%[0-9]+]] = torch.aten.cat [[PARTS]], {{.*}} -> !torch.vtensor<[1,2,4,8],f32>
// CHECK-NEXT: torch.aten.convolution [[BLOCK]], %arg1, {{.*}} -> !torch.vtensor<[1,2,2,8],f32>
// CHECK-NOT: dist.all_gather
func.func @convolution(
    %x: !torch.vtensor<[1,2,8,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], [], ["h"], []], []>},
    %w: !torch.vtensor<[2,2,3,3],f32>) -> (!torch.vtensor<[1,2,8,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], [], ["h"], []], []>}) {
  %none = torch.constant.none
  %false = torch.constant.bool false
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %0 = torch.prim.ListConstruct %int1, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.prim.ListConstruct %int0, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
  %2 = torch.aten.convolution %x, %w, %none, %0, %0, %0, %false, %1, %int1 : !torch.vtensor<[1,2,8,8],f32>, !torch.vtensor<[2,2,3,3],f32>, !torch.none, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int -> !torch.vtensor<[1,2,8,8],f32>
  return %2 : !torch.vtensor<[1,2,8,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["h", 4, "space"]]} : () -> ()

// Windows that do not overlap need nothing; the numbers of their maxima are those of the whole image.
// CHECK-LABEL: func.func @pool
// CHECK: [[MAXIMA:%[a-z0-9_]+]], [[PLACES:%[a-z0-9_]+]] = torch.aten.max_pool2d_with_indices %arg0
// CHECK-NEXT: [[START:%[0-9]+]] = "dist.offset"() {axes = ["h"], base = 0 : i64, extent = 1 : i64, scale = 16 : i64}
// CHECK-NEXT: torch.aten.add.Scalar [[PLACES]], [[START]]
// CHECK-NOT: dist.exchange
func.func @pool(%x: !torch.vtensor<[1,2,8,8],f32> {dist.sharding = #dist.sharding<@mesh, [[], [], ["h"], []], []>}) -> (!torch.vtensor<[1,2,4,4],f32> {dist.sharding = #dist.sharding<@mesh, [[], [], ["h"], []], []>}, !torch.vtensor<[1,2,4,4],si64> {dist.sharding = #dist.sharding<@mesh, [[], [], ["h"], []], []>}) {
  %false = torch.constant.bool false
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %0 = torch.prim.ListConstruct %int2, %int2 : (!torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.prim.ListConstruct %int0, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
  %2 = torch.prim.ListConstruct %int1, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
  %3:2 = torch.aten.max_pool2d_with_indices %x, %0, %0, %1, %2, %false : !torch.vtensor<[1,2,8,8],f32>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool -> !torch.vtensor<[1,2,4,4],f32>, !torch.vtensor<[1,2,4,4],si64>
  return %3#0, %3#1 : !torch.vtensor<[1,2,4,4],f32>, !torch.vtensor<[1,2,4,4],si64>
}
