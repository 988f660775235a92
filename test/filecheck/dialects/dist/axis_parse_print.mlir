// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @halves
func.func @halves(%x: !torch.vtensor<[4,8],f32>) {
  // CHECK: sharding = #dist.sharding<@mesh, {{\[}}[#dist.axis<"tensor", 1 : i64, 2 : i64>], [#dist.axis<"tensor", 2 : i64, 2 : i64>]], []>
  %0 = "dist.reshard"(%x) {sharding = #dist.sharding<@mesh, [[#dist.axis<"tensor", 1, 2>], [#dist.axis<"tensor", 2, 2>]], []>} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}

// CHECK-LABEL: @axes_of_a_collective
func.func @axes_of_a_collective(%x: !torch.vtensor<[4,8],f32>) {
  // CHECK: "dist.all_reduce"(%{{.*}}) {axes = ["data", #dist.axis<"tensor", 2 : i64, 2 : i64>], reduction = "sum"}
  %0 = "dist.all_reduce"(%x) {axes = ["data", #dist.axis<"tensor", 2, 2>], reduction = "sum"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
  return
}
