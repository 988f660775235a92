// RUN: shardc-opt --dist-propagate %s | filecheck %s

// Keys are split before queries, which are computed last: the rows of the product are those of the queries.

"dist.mesh"() {sym_name = "mesh", axes = [["context", 2, "space"]]} : () -> ()

// CHECK-LABEL: func.func @scores
// CHECK: torch.aten.bmm {{.*}}dist.shardings = [#dist.sharding<@mesh, {{\[\[\], \["context"\], \[\]\]}}, []>]
func.func @scores(
    %x: !torch.vtensor<[2,8,4],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [[], ["context"], []], []>}) -> !torch.vtensor<[2,4,8],f32> {
  %zero = torch.constant.int 0
  %one = torch.constant.int 1
  %two = torch.constant.int 2
  %eight = torch.constant.int 8
  %0 = torch.aten.transpose.int %x, %one, %two : !torch.vtensor<[2,8,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,4,8],f32>
  %1 = torch.aten.slice.Tensor %x, %one, %zero, %eight, %two : !torch.vtensor<[2,8,4],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[2,4,4],f32>
  %2 = torch.aten.sin %1 : !torch.vtensor<[2,4,4],f32> -> !torch.vtensor<[2,4,4],f32>
  %3 = torch.aten.cos %2 : !torch.vtensor<[2,4,4],f32> -> !torch.vtensor<[2,4,4],f32>
  %4 = torch.aten.bmm %3, %0 : !torch.vtensor<[2,4,4],f32>, !torch.vtensor<[2,4,8],f32> -> !torch.vtensor<[2,4,8],f32>
  return %4 : !torch.vtensor<[2,4,8],f32>
}
