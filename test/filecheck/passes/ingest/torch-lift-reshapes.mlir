// RUN: shardc-opt --pipeline torch-lift-reshapes %s | filecheck %s

// CHECK-LABEL: func.func @step
func.func @step(%x: !torch.vtensor<[4,8,6],f32>) -> (!torch.vtensor<[16,2,6],f32>, !torch.vtensor<[32,6],f32>, !torch.vtensor<[4,4,2,6],f32>) {
  %n2 = torch.constant.int 2
  %n4 = torch.constant.int 4
  %n6 = torch.constant.int 6
  %n16 = torch.constant.int 16
  %n32 = torch.constant.int 32
  %windows = torch.prim.ListConstruct %n16, %n2, %n6 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %rows = torch.prim.ListConstruct %n32, %n6 : (!torch.int, !torch.int) -> !torch.list<int>
  %apart = torch.prim.ListConstruct %n4, %n4, %n2, %n6 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>

  // Eight rows are four windows of two, and the windows of all images are one dim: first the rows are split.
  // CHECK:      [[APART:%.*]] = torch.aten.view %arg0, {{.*}} -> !torch.vtensor<[4,4,2,6],f32>
  // CHECK-NEXT: [[WINDOWS:%.*]] = torch.aten.view [[APART]], {{.*}} -> !torch.vtensor<[16,2,6],f32>
  %0 = torch.aten.view %x, %windows : !torch.vtensor<[4,8,6],f32>, !torch.list<int> -> !torch.vtensor<[16,2,6],f32>

  // What only merges dims, or only splits them, stays.
  // CHECK-NEXT: [[ROWS:%.*]] = torch.aten.view %arg0, {{.*}} -> !torch.vtensor<[32,6],f32>
  // CHECK-NEXT: [[SPLIT:%.*]] = torch.aten.view %arg0, {{.*}} -> !torch.vtensor<[4,4,2,6],f32>
  %1 = torch.aten.view %x, %rows : !torch.vtensor<[4,8,6],f32>, !torch.list<int> -> !torch.vtensor<[32,6],f32>
  %2 = torch.aten.view %x, %apart : !torch.vtensor<[4,8,6],f32>, !torch.list<int> -> !torch.vtensor<[4,4,2,6],f32>
  // CHECK-NEXT: return [[WINDOWS]], [[ROWS]], [[SPLIT]]
  return %0, %1, %2 : !torch.vtensor<[16,2,6],f32>, !torch.vtensor<[32,6],f32>, !torch.vtensor<[4,4,2,6],f32>
}
