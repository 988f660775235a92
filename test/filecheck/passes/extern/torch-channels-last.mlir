// RUN: shardc-opt --torch-channels-last %s | filecheck %s

// A convolution with channels last: its input is permuted once, its result is permuted back.
// CHECK-LABEL: func.func @layer
// CHECK-SAME: %[[X:.*]]: !torch.vtensor<[2,3,8,9],f32>, %[[W:.*]]: !torch.vtensor<[4,3,3,3],f32>
// CHECK: %[[LAST:.*]] = torch.aten.permute %[[X]], %{{.*}} -> !torch.vtensor<[2,8,9,3],f32>
// CHECK: %[[Y:.*]] = torch.operator "torch.shardc.convolution_last"(%[[LAST]], %[[W]], {{.*}}) {{.*}} -> !torch.vtensor<[2,6,7,4],f32>
// CHECK: %[[BACK:.*]] = torch.aten.permute %[[Y]], %{{.*}} -> !torch.vtensor<[2,4,6,7],f32>
// CHECK: return %[[BACK]]
func.func @layer(%x: !torch.vtensor<[2,3,8,9],f32>, %w: !torch.vtensor<[4,3,3,3],f32>) -> !torch.vtensor<[2,4,6,7],f32> {
  %none = torch.constant.none
  %false = torch.constant.bool false
  %zero = torch.constant.int 0
  %one = torch.constant.int 1
  %ones = torch.prim.ListConstruct %one, %one : (!torch.int, !torch.int) -> !torch.list<int>
  %zeros = torch.prim.ListConstruct %zero, %zero : (!torch.int, !torch.int) -> !torch.list<int>
  %y = torch.aten.convolution %x, %w, %none, %ones, %zeros, %ones, %false, %zeros, %one : !torch.vtensor<[2,3,8,9],f32>, !torch.vtensor<[4,3,3,3],f32>, !torch.none, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int -> !torch.vtensor<[2,4,6,7],f32>
  return %y : !torch.vtensor<[2,4,6,7],f32>
}
