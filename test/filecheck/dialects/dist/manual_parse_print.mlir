// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @manual
func.func @manual(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // CHECK: %1 = "dist.manual"(%0) ({
  // CHECK-NEXT: ^bb0(%arg1: !torch.vtensor<[2,8],f32>):
  // CHECK: }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, {{\[}}["data", "tensor"], []], []>], out_shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data", "tensor"], []], []>], out_shardings = [#dist.sharding<@mesh, [["data"], []], []>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>
  return
}

// A result may be left partial over a manual axis.
// CHECK-LABEL: @partial
func.func @partial(%x: !torch.vtensor<[4,8],f32>) {
  %t = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // CHECK: out_shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "data"]]>]
  %0 = "dist.manual"(%t) ({
  ^bb0(%a: !torch.vtensor<[2,8],f32>):
    %u = torch.prim.TupleConstruct %a : !torch.vtensor<[2,8],f32> -> !torch.tuple<vtensor<[2,8],f32>>
    "dist.yield"(%u) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[2,8],f32>>) -> ()
  }) {axes = ["data"], in_shardings = [#dist.sharding<@mesh, [["data"], []], []>], out_shardings = [#dist.sharding<@mesh, [[], []], [["sum", "data"]]>]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[2,8],f32>>
  return
}
