// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @all_to_all
func.func @all_to_all(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,2],f32> {
  // CHECK: %0 = "dist.all_to_all"(%arg0) {axes = ["tensor"], concat_dim = 0 : i64, split_dim = 1 : i64} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,2],f32>
  %0 = "dist.all_to_all"(%x) {split_dim = 1, concat_dim = 0, axes = ["tensor"]} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[16,2],f32>
  return %0 : !torch.vtensor<[16,2],f32>
}
