// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @offset
func.func @offset(%start: !torch.int) -> !torch.int {
  // CHECK: %0 = "dist.offset"() {axes = ["data"], base = 0 : i64, extent = 128 : i64, scale = 1 : i64} : () -> !torch.int
  %0 = "dist.offset"() {axes = ["data"], base = 0, extent = 128, scale = 1} : () -> !torch.int
  // CHECK: %1 = "dist.offset"(%arg0) {axes = ["micro", "data"], base = -1 : i64, extent = 4 : i64, scale = -2 : i64} : (!torch.int) -> !torch.int
  %1 = "dist.offset"(%start) {axes = ["micro", "data"], base = -1, extent = 4, scale = -2} : (!torch.int) -> !torch.int
  return %1 : !torch.int
}
