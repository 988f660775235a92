// RUN: shardc-opt --split-input-file --pipeline dist-propagate,dist-insert-reshards %s | filecheck %s

// A value and its transpose that are both needed whole are gathered once: the transpose is one of what was gathered.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"]]} : () -> ()

func.func @both(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["data"]], []>}) -> (!torch.vtensor<[8,16],f32>, !torch.vtensor<[16,8],f32>) {
  // CHECK-LABEL: func.func @both
  // CHECK: [[X:%[0-9]+]] = "dist.reshard"(%arg0)
  // CHECK-NEXT: [[T:%[0-9]+]] = torch.aten.t [[X]] {dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>]}
  // CHECK-NEXT: torch.aten.cumsum [[X]], %int1
  // CHECK-NEXT: torch.aten.cumsum [[T]], %int0
  %none = torch.constant.none
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %0 = torch.aten.t %x : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,8],f32>
  %1 = torch.aten.cumsum %x, %int1, %none : !torch.vtensor<[8,16],f32>, !torch.int, !torch.none -> !torch.vtensor<[8,16],f32>
  %2 = torch.aten.cumsum %0, %int0, %none : !torch.vtensor<[16,8],f32>, !torch.int, !torch.none -> !torch.vtensor<[16,8],f32>
  return %1, %2 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,8],f32>
}

// -----

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"]]} : () -> ()

// Where somebody reads the transpose as it is cut, it stays so.
func.func @one_as_it_is(%x: !torch.vtensor<[8,16],f32> {dist.sharding = #dist.sharding<@mesh, [[], ["data"]], []>}) -> (!torch.vtensor<[8,16],f32>, !torch.vtensor<[16,8],f32>, !torch.vtensor<[16,8],f32> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) {
  // CHECK-LABEL: func.func @one_as_it_is
  // CHECK: [[T:%[0-9]+]] = torch.aten.t %arg0
  // CHECK: "dist.reshard"(%arg0)
  // CHECK: "dist.reshard"([[T]])
  // CHECK: torch.aten.relu [[T]]
  %none = torch.constant.none
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %0 = torch.aten.t %x : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,8],f32>
  %1 = torch.aten.cumsum %x, %int1, %none : !torch.vtensor<[8,16],f32>, !torch.int, !torch.none -> !torch.vtensor<[8,16],f32>
  %2 = torch.aten.cumsum %0, %int0, %none : !torch.vtensor<[16,8],f32>, !torch.int, !torch.none -> !torch.vtensor<[16,8],f32>
  %3 = torch.aten.relu %0 : !torch.vtensor<[16,8],f32> -> !torch.vtensor<[16,8],f32>
  return %1, %2, %3 : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,8],f32>, !torch.vtensor<[16,8],f32>
}
