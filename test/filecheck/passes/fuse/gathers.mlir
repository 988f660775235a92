// RUN: shardc-opt --kern-fuse %s | filecheck %s

// A row for each index, and what is done with it. The index is held within the table; whether it was is a result, which the
// call checks.
// CHECK-LABEL: func.func @embed
// CHECK: "kern.kernel"
// CHECK: ^bb0(%{{.*}}: tensor<2x3xi64>, %[[TABLE:.*]]: tensor<7x5xf32>):
// CHECK: linalg.generic
// CHECK: arith.select
// CHECK: %[[AT:.*]] = arith.index_cast
// CHECK: %[[COLUMN:.*]] = linalg.index 1
// CHECK: tensor.extract %[[TABLE]][%[[AT]], %[[COLUMN]]]
// CHECK: arith.maxsi
// CHECK: kern.checks = {{\[\[}}0, "index out of range in self"]]
// CHECK-NOT: torch.aten
func.func @embed(%w: !torch.vtensor<[7,5],f32>, %i: !torch.vtensor<[2,3],si64>) -> !torch.vtensor<[2,3,5],f32> {
  %none = torch.constant.int -1
  %false = torch.constant.bool false
  %rows = torch.aten.embedding %w, %i, %none, %false, %false : !torch.vtensor<[7,5],f32>, !torch.vtensor<[2,3],si64>, !torch.int, !torch.bool, !torch.bool -> !torch.vtensor<[2,3,5],f32>
  %0 = torch.aten.neg %rows : !torch.vtensor<[2,3,5],f32> -> !torch.vtensor<[2,3,5],f32>
  return %0 : !torch.vtensor<[2,3,5],f32>
}
