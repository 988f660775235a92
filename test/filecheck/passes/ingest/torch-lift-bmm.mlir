// RUN: shardc-opt --pipeline torch-lift-bmm,torch-share %s | filecheck %s

// PyTorch multiplies a batch of heads as one flat batch. The pass gives batch and heads dims of their own, so that a cut
// of the heads can go through; the flat views go, as nobody reads them.
func.func @scores(
    %q: !torch.vtensor<[2,4,8,16],f32>, %k: !torch.vtensor<[2,4,8,16],f32>) -> !torch.vtensor<[2,4,8,8],f32> {
  // CHECK-LABEL: func.func @scores
  // CHECK: %[[K:.*]] = torch.aten.transpose.int %arg1, %int2, %int3
  // CHECK-NEXT: %[[S:.*]] = torch.aten.matmul %arg0, %[[K]] {{.*}} -> !torch.vtensor<[2,4,8,8],f32>
  // CHECK-NEXT: return %[[S]]
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %int4 = torch.constant.int 4
  %int8 = torch.constant.int 8
  %int16 = torch.constant.int 16
  %flat = torch.prim.ListConstruct %int8, %int8, %int16 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %four = torch.prim.ListConstruct %int2, %int4, %int8, %int8 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.view %q, %flat : !torch.vtensor<[2,4,8,16],f32>, !torch.list<int> -> !torch.vtensor<[8,8,16],f32>
  %1 = torch.aten.view %k, %flat : !torch.vtensor<[2,4,8,16],f32>, !torch.list<int> -> !torch.vtensor<[8,8,16],f32>
  %2 = torch.aten.transpose.int %1, %int1, %int2 : !torch.vtensor<[8,8,16],f32>, !torch.int, !torch.int -> !torch.vtensor<[8,16,8],f32>
  %3 = torch.aten.bmm %0, %2 : !torch.vtensor<[8,8,16],f32>, !torch.vtensor<[8,16,8],f32> -> !torch.vtensor<[8,8,8],f32>
  %4 = torch.aten.view %3, %four : !torch.vtensor<[8,8,8],f32>, !torch.list<int> -> !torch.vtensor<[2,4,8,8],f32>
  return %4 : !torch.vtensor<[2,4,8,8],f32>
}

// A batch that is no view of batch and heads stays as it is.
func.func @plain(%x: !torch.vtensor<[8,8,16],f32>, %y: !torch.vtensor<[8,16,8],f32>) -> !torch.vtensor<[8,8,8],f32> {
  // CHECK-LABEL: func.func @plain
  // CHECK: torch.aten.bmm
  %0 = torch.aten.bmm %x, %y : !torch.vtensor<[8,8,16],f32>, !torch.vtensor<[8,16,8],f32> -> !torch.vtensor<[8,8,8],f32>
  return %0 : !torch.vtensor<[8,8,8],f32>
}
