// RUN: shardc-opt --split-input-file --dist-propagate --dist-insert-reshards --dist-partition %s | filecheck %s

"dist.mesh"() {sym_name = "mesh", axes = [["h", 4, "space"]]} : () -> ()

// What leaves a block goes to the next one; the rest stays.
// CHECK-LABEL: func.func @roll
// CHECK: [[STAYS:%[0-9]+]] = torch.aten.slice.Tensor %arg0
// CHECK-NEXT: [[LEAVES:%[0-9]+]] = torch.aten.slice.Tensor %arg0
// CHECK-NEXT: [[COMES:%[0-9]+]] = "dist.exchange"([[LEAVES]]) {axes = ["h"], sources = [3, 0, 1, 2]} : (!torch.vtensor<[3,1],f32>) -> !torch.vtensor<[3,1],f32>
// CHECK: torch.aten.cat {{.*}} -> !torch.vtensor<[3,4],f32>
func.func @roll(%x: !torch.vtensor<[3,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["h"]], []>}) -> !torch.vtensor<[3,16],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %1 = torch.aten.roll %x, %0, %0 : !torch.vtensor<[3,16],f32>, !torch.list<int>, !torch.list<int> -> !torch.vtensor<[3,16],f32>
  return %1 : !torch.vtensor<[3,16],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["h", 4, "space"]]} : () -> ()

// A dim with an element for each device: devices hand on all that they have.
// CHECK-LABEL: func.func @blocks
// CHECK: %[[#ONE:]] = "dist.exchange"(%arg0) {axes = ["h"], {{.*}}sources = [1, 2, 3, 0]} : (!torch.vtensor<[1,8],f32>) -> !torch.vtensor<[1,8],f32>
func.func @blocks(%x: !torch.vtensor<[4,8],f32> {dist.sharding = #dist.sharding<@mesh, [["h"], []], []>}) -> !torch.vtensor<[4,8],f32> {
  %int-1 = torch.constant.int -1
  %int0 = torch.constant.int 0
  %0 = torch.prim.ListConstruct %int-1 : (!torch.int) -> !torch.list<int>
  %1 = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %2 = torch.aten.roll %x, %0, %1 : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.list<int> -> !torch.vtensor<[4,8],f32>
  return %2 : !torch.vtensor<[4,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["h", 4, "space"]]} : () -> ()

// CHECK-LABEL: func.func @flip
// CHECK: [[TURNED:%[0-9]+]] = torch.aten.flip %arg0
// CHECK-NEXT: "dist.exchange"([[TURNED]]) {axes = ["h"], {{.*}}sources = [3, 2, 1, 0]}
func.func @flip(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["h"]], []>}) -> !torch.vtensor<[8],f32> {
  %int0 = torch.constant.int 0
  %0 = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %1 = torch.aten.flip %x, %0 : !torch.vtensor<[8],f32>, !torch.list<int> -> !torch.vtensor<[8],f32>
  return %1 : !torch.vtensor<[8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["h", 4, "space"], ["t", 2, "time"]]} : () -> ()

// Iterations can't trade: in a program with loops the dim is gathered.
// CHECK-LABEL: func.func @loops
// CHECK: "dist.all_gather"
// CHECK-NOT: dist.exchange
func.func @loops(%x: !torch.vtensor<[8],f32> {dist.sharding = #dist.sharding<@mesh, [["h"]], []>}) -> !torch.vtensor<[8],f32> {
  %int0 = torch.constant.int 0
  %0 = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %1 = torch.aten.flip %x, %0 : !torch.vtensor<[8],f32>, !torch.list<int> -> !torch.vtensor<[8],f32>
  return %1 : !torch.vtensor<[8],f32>
}
