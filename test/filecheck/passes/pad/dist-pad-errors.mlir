// RUN: not shardc-opt --dist-pad %s 2>&1 | filecheck %s

// Fewer elements than blocks: some devices would have nothing at all whatever the padding.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 4, "space"]]} : () -> ()

// CHECK:      TooManyWays: dim 0 of 'x' has 3 elements and cannot be sharded 4 ways (data)
// CHECK-NEXT: try: shard it over axes of at most 3 devices in all, or leave it whole;
func.func @step(%x: !torch.vtensor<[3],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [["data"]], []>}) -> !torch.vtensor<[3],f32> {
  return %x : !torch.vtensor<[3],f32>
}
