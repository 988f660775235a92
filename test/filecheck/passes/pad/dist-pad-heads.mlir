// RUN: shardc-opt --dist-pad %s | filecheck %s

// 24 rows of a weight that are viewed as 3 heads of 8 are cut between heads, though 2 divides 24: 32 rows, 4 heads.
// Where a call can't have padding (cumsum along the heads) it is cut off before.

"dist.mesh"() {sym_name = "mesh", axes = [["tensor", 2, "space"]]} : () -> ()

// CHECK:      func.func @step(%arg0: !torch.vtensor<[32],f32>
// CHECK-SAME:   dist.padded = array<i64: 32>
// CHECK:        torch.aten.view %arg0, {{.*}} -> !torch.vtensor<[4,8],f32>
// CHECK:        [[CUT:%[0-9]+]] = torch.aten.slice.Tensor {{.*}} : !torch.vtensor<[4,8],f32>, {{.*}} -> !torch.vtensor<[3,8],f32>
// CHECK:        torch.aten.cumsum [[CUT]], {{.*}} -> !torch.vtensor<[3,8],f32>
func.func @step(
    %w: !torch.vtensor<[24],f32> {dist.role = "param", dist.name = "w", dist.sharding = #dist.sharding<@mesh, [["tensor"]], []>}) -> !torch.vtensor<[3,8],f32> {
  %heads = torch.constant.int 3
  %depth = torch.constant.int 8
  %dim = torch.constant.int 0
  %none = torch.constant.none
  %shape = torch.prim.ListConstruct %heads, %depth : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.view %w, %shape : !torch.vtensor<[24],f32>, !torch.list<int> -> !torch.vtensor<[3,8],f32>
  %1 = torch.aten.cumsum %0, %dim, %none : !torch.vtensor<[3,8],f32>, !torch.int, !torch.none -> !torch.vtensor<[3,8],f32>
  return %1 : !torch.vtensor<[3,8],f32>
}
