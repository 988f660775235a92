// RUN: shardc-opt --pipeline 'dist-partition' %s | filecheck %s --check-prefix=BYTES
// RUN: shardc-opt --pipeline 'dist-partition{cluster=h100-2x2}' %s | filecheck %s --check-prefix=PAIRS
// RUN: shardc-opt --pipeline 'dist-partition{cluster=h100-4}' %s | filecheck %s --check-prefix=NODE

// A large sum over two nodes of two devices: what a node reduces is halved before it crosses the network.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

func.func @all_reduce(%x: !torch.vtensor<[4096,8192],f32> {dist.sharding = #dist.sharding<@mesh, [[], []], [["sum", "data"], ["sum", "tensor"]]>}) -> !torch.vtensor<[4096,8192],f32> {
  // BYTES: "dist.all_reduce"(%arg0) {axes = ["data", "tensor"]
  // BYTES-NEXT: return
  // PAIRS: "dist.reduce_scatter"(%arg0) {axes = ["tensor"]
  // PAIRS-NEXT: "dist.all_reduce"({{.*}}) {axes = ["data"]
  // PAIRS-NEXT: "dist.all_gather"({{.*}}) {axes = ["tensor"]
  // PAIRS-NEXT: return
  // NODE: "dist.all_reduce"(%arg0) {axes = ["data", "tensor"]
  // NODE-NEXT: return
  %0 = "dist.reshard"(%x) {dist.shardings = [#dist.sharding<@mesh, [[], []], []>], sharding = #dist.sharding<@mesh, [[], []], []>} : (!torch.vtensor<[4096,8192],f32>) -> !torch.vtensor<[4096,8192],f32>
  return %0 : !torch.vtensor<[4096,8192],f32>
}
