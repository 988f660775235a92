// RUN: shardc-opt --dist-share-products %s | filecheck %s

// The rows of %x are the sequence, [2, 16, 4]. Those of %latents, [2, 8, 4], are not, so all devices would compute
// their product. The reshape of its result into batch and latents gets a refinement of the latents, the longer dim.

"dist.mesh"() {sym_name = "mesh", axes = [["context", 2, "space"]]} : () -> ()

// CHECK-NOT:  dist.sequence_axes
// CHECK:      %[[ROWS:.*]] = torch.aten.mm
// CHECK-NOT:  dist.refine
// CHECK-SAME: -> !torch.vtensor<[32,4],f32>
// CHECK:      %[[PRODUCT:.*]] = torch.aten.mm
// CHECK-NOT:  dist.refine
// CHECK-SAME: -> !torch.vtensor<[16,4],f32>
// CHECK:      torch.aten.view %[[PRODUCT]]
// CHECK-SAME: {dist.refine = {{\[\[}}0, "context", 1]]}
// CHECK-SAME: -> !torch.vtensor<[2,8,4],f32>
func.func @step(
    %x: !torch.vtensor<[2,16,4],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [[], ["context"], []], []>},
    %latents: !torch.vtensor<[2,8,4],f32> {dist.role = "param", dist.name = "latents"},
    %w: !torch.vtensor<[4,4],f32> {dist.role = "param", dist.name = "w"}) -> (!torch.vtensor<[2,16,4],f32>, !torch.vtensor<[2,8,4],f32>)
    attributes {dist.sequence_axes = ["context"]} {
  %two = torch.constant.int 2
  %four = torch.constant.int 4
  %eight = torch.constant.int 8
  %sixteen = torch.constant.int 16
  %thirtytwo = torch.constant.int 32
  %flat = torch.prim.ListConstruct %thirtytwo, %four : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.view %x, %flat : !torch.vtensor<[2,16,4],f32>, !torch.list<int> -> !torch.vtensor<[32,4],f32>
  %1 = torch.aten.mm %0, %w : !torch.vtensor<[32,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[32,4],f32>
  %deep = torch.prim.ListConstruct %two, %sixteen, %four : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %2 = torch.aten.view %1, %deep : !torch.vtensor<[32,4],f32>, !torch.list<int> -> !torch.vtensor<[2,16,4],f32>
  %few = torch.prim.ListConstruct %sixteen, %four : (!torch.int, !torch.int) -> !torch.list<int>
  %3 = torch.aten.view %latents, %few : !torch.vtensor<[2,8,4],f32>, !torch.list<int> -> !torch.vtensor<[16,4],f32>
  %4 = torch.aten.mm %3, %w : !torch.vtensor<[16,4],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[16,4],f32>
  %back = torch.prim.ListConstruct %two, %eight, %four : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %5 = torch.aten.view %4, %back : !torch.vtensor<[16,4],f32>, !torch.list<int> -> !torch.vtensor<[2,8,4],f32>
  return %2, %5 : !torch.vtensor<[2,16,4],f32>, !torch.vtensor<[2,8,4],f32>
}
