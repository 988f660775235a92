// RUN: shardc-opt --pipeline torch-lift-convolutions %s | filecheck %s

// Models pad a short convolution on both sides, and drop the end of what it makes. That is a causal convolution, of which what
// is made is as long as what is read.
func.func @short(
    %x: !torch.vtensor<[2,6,8],f32>, %w: !torch.vtensor<[6,1,4],f32>, %b: !torch.vtensor<[6],f32>) -> !torch.vtensor<[2,6,8],f32> {
  // CHECK-LABEL: func.func @short
  // CHECK: %[[Y:.*]] = torch.operator "torch.shardc.causal_convolution"(%arg0, %arg1, %arg2, %int1{{.*}}, %int6{{.*}})
  // CHECK-NOT: torch.aten.convolution
  // CHECK: return %[[Y]]
  %false = torch.constant.bool false
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %int3 = torch.constant.int 3
  %int6 = torch.constant.int 6
  %int8 = torch.constant.int 8
  %zero = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %one = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %pad = torch.prim.ListConstruct %int3 : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.convolution %x, %w, %b, %one, %pad, %one, %false, %zero, %int6 : !torch.vtensor<[2,6,8],f32>, !torch.vtensor<[6,1,4],f32>, !torch.vtensor<[6],f32>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int -> !torch.vtensor<[2,6,11],f32>
  %1 = torch.aten.slice.Tensor %0, %int2, %int0, %int8, %int1 : !torch.vtensor<[2,6,11],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[2,6,8],f32>
  return %1 : !torch.vtensor<[2,6,8],f32>
}

// What is read to its end stays.
func.func @whole(
    %x: !torch.vtensor<[2,6,8],f32>, %w: !torch.vtensor<[6,1,4],f32>, %b: !torch.vtensor<[6],f32>) -> !torch.vtensor<[2,6,11],f32> {
  // CHECK-LABEL: func.func @whole
  // CHECK: torch.aten.convolution
  %false = torch.constant.bool false
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %int3 = torch.constant.int 3
  %int6 = torch.constant.int 6
  %zero = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %one = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %pad = torch.prim.ListConstruct %int3 : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.convolution %x, %w, %b, %one, %pad, %one, %false, %zero, %int6 : !torch.vtensor<[2,6,8],f32>, !torch.vtensor<[6,1,4],f32>, !torch.vtensor<[6],f32>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int -> !torch.vtensor<[2,6,11],f32>
  return %0 : !torch.vtensor<[2,6,11],f32>
}
