// RUN: shardc-opt --pipeline torch-lift-repeats %s | filecheck %s

// CHECK-LABEL: func.func @step
func.func @step(%x: !torch.vtensor<[8,4],f32>, %y: !torch.vtensor<[1,4],f32>)
    -> (!torch.vtensor<[24,4],f32>, !torch.vtensor<[2,8,12],f32>, !torch.vtensor<[3,4],f32>) {
  %n1 = torch.constant.int 1
  %n2 = torch.constant.int 2
  %n3 = torch.constant.int 3
  %rows = torch.prim.ListConstruct %n3, %n1 : (!torch.int, !torch.int) -> !torch.list<int>
  %more = torch.prim.ListConstruct %n2, %n1, %n3 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>

  // Three copies of eight rows: the copies get a dim of their own, so that the rows can be split.
  // CHECK:      [[ONE:%.*]] = torch.aten.reshape %arg0, {{.*}} -> !torch.vtensor<[1,8,1,4],f32>
  // CHECK-NEXT: [[COPIES:%.*]] = torch.aten.expand [[ONE]], {{.*}} -> !torch.vtensor<[3,8,1,4],f32>
  // CHECK-NEXT: [[ROWS:%.*]] = torch.aten.reshape [[COPIES]], {{.*}} -> !torch.vtensor<[24,4],f32>
  %0 = torch.aten.repeat %x, %rows : !torch.vtensor<[8,4],f32>, !torch.list<int> -> !torch.vtensor<[24,4],f32>

  // New dims before those that are repeated are dims of their own already.
  // CHECK:      torch.aten.reshape %arg0, {{.*}} -> !torch.vtensor<[1,1,8,1,4],f32>
  // CHECK-NEXT: torch.aten.expand {{.*}} -> !torch.vtensor<[2,1,8,3,4],f32>
  // CHECK-NEXT: [[MORE:%.*]] = torch.aten.reshape {{.*}} -> !torch.vtensor<[2,8,12],f32>
  %1 = torch.aten.repeat %x, %more : !torch.vtensor<[8,4],f32>, !torch.list<int> -> !torch.vtensor<[2,8,12],f32>

  // A dim of one element cannot be split: the repeat stays.
  // CHECK:      [[SAME:%.*]] = torch.aten.repeat %arg1
  %2 = torch.aten.repeat %y, %rows : !torch.vtensor<[1,4],f32>, !torch.list<int> -> !torch.vtensor<[3,4],f32>
  // CHECK:      return [[ROWS]], [[MORE]], [[SAME]]
  return %0, %1, %2 : !torch.vtensor<[24,4],f32>, !torch.vtensor<[2,8,12],f32>, !torch.vtensor<[3,4],f32>
}
