// RUN: shardc-opt --dist-pad %s | filecheck %s

// State leaves as it came in: padded, with zeros there, whatever the step put into the padding. The next step, and
// what is saved, read them. The loss that a user gets is not padded.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"]]} : () -> ()

// CHECK:      func.func @step(%arg0: !torch.vtensor<[4,5],f32>
// CHECK-SAME:   -> (!torch.vtensor<[4,5],f32> {
// CHECK-SAME:   dist.padded = array<i64: 4, 5>
// CHECK-SAME:   !torch.vtensor<[3,5],f32>)
// CHECK:        [[NEW:%[0-9]+]] = torch.aten.add.Scalar %arg0, {{.*}} -> !torch.vtensor<[4,5],f32>
// CHECK-DAG:    [[STATE:%[0-9]+]] = torch.aten.where.ScalarOther {{%[0-9]+}}, [[NEW]], %float0.0{{.*}} -> !torch.vtensor<[4,5],f32>
// CHECK-DAG:    [[CUT:%[0-9]+]] = torch.aten.slice.Tensor [[NEW]], {{.*}} -> !torch.vtensor<[3,5],f32>
// CHECK:        return [[STATE]], [[CUT]]
func.func @step(
    %w: !torch.vtensor<[3,5],f32> {dist.role = "param", dist.name = "w", dist.sharding = #dist.sharding<@mesh, [["data"], []], []>})
    -> (!torch.vtensor<[3,5],f32> {dist.role = "param", dist.name = "w"}, !torch.vtensor<[3,5],f32>) {
  %one = torch.constant.int 1
  %0 = torch.aten.add.Scalar %w, %one, %one : !torch.vtensor<[3,5],f32>, !torch.int, !torch.int -> !torch.vtensor<[3,5],f32>
  return %0, %0 : !torch.vtensor<[3,5],f32>, !torch.vtensor<[3,5],f32>
}
