// RUN: shardc-opt --pipeline "torch-reduce-dtype" %s | filecheck %s

// A gradient in bf16 is cast to f32, summed behind that cast, and cast back; of one that is such a cast already, the
// sum stands behind it. One in f32 stays.

// CHECK: [[G:%[0-9]+]] = torch.aten.tanh %arg0 {dist.phase = "backward"}
// CHECK: [[W:%[0-9]+]] = torch.aten._to_copy [[G]], {{.*}} {dist.phase = "backward", dist.reduce = "after"} : {{.*}} -> !torch.vtensor<[4],f32>
// CHECK: [[N:%[0-9]+]] = torch.aten._to_copy [[W]], {{.*}} {dist.name = "grad:w", dist.phase = "backward", dist.reduce = "before"} : {{.*}} -> !torch.vtensor<[4],bf16>
// CHECK: torch.aten._to_copy %{{[0-9]+}}, {{.*}} {dist.name = "grad:v", dist.phase = "backward", dist.reduce = "after"}
// CHECK: torch.aten.tanh %arg1 {dist.name = "grad:u", dist.phase = "backward"}
// CHECK-NOT: dist.reduce
// CHECK: torch.aten.mul.Tensor %arg0, [[N]] {dist.phase = "optimizer"}
func.func @step(
    %w: !torch.vtensor<[4],bf16> {dist.role = "param", dist.name = "w"},
    %v: !torch.vtensor<[4],f32> {dist.role = "param", dist.name = "v"}) -> (
    !torch.vtensor<[4],bf16> {dist.role = "param", dist.name = "w"},
    !torch.vtensor<[4],f32> {dist.role = "param", dist.name = "v"}) {
  %int6 = torch.constant.int 6
  %false = torch.constant.bool false
  %none = torch.constant.none
  %0 = torch.aten.sinh %w {dist.phase = "backward"} : !torch.vtensor<[4],bf16> -> !torch.vtensor<[4],bf16>
  %1 = torch.aten.tanh %w {dist.name = "grad:w", dist.phase = "backward"} : !torch.vtensor<[4],bf16> -> !torch.vtensor<[4],bf16>
  %2 = torch.aten._to_copy %0, %int6, %none, %none, %none, %false, %none {dist.name = "grad:v", dist.phase = "backward"} : !torch.vtensor<[4],bf16>, !torch.int, !torch.none, !torch.none, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[4],f32>
  %3 = torch.aten.tanh %v {dist.name = "grad:u", dist.phase = "backward"} : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %4 = torch.aten.mul.Tensor %w, %1 {dist.phase = "optimizer"} : !torch.vtensor<[4],bf16>, !torch.vtensor<[4],bf16> -> !torch.vtensor<[4],bf16>
  %5 = torch.aten.mul.Tensor %2, %3 {dist.phase = "optimizer"} : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  return %4, %5 : !torch.vtensor<[4],bf16>, !torch.vtensor<[4],f32>
}
