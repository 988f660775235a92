// RUN: shardc-opt --pipeline torch-lift-experts,torch-share %s | filecheck %s

// A matrix for each of 12 rows, chosen of four: the product reads the four. Where the index is of another dim, or
// both sides are chosen, the calls stay. Each row's expert is checked once.
func.func @step(%x: !torch.vtensor<[12,8],f32>, %w: !torch.vtensor<[4,16,8],f32>, %ids: !torch.vtensor<[12],si64>,
    %dy: !torch.vtensor<[12,16],f32>)
    -> (!torch.vtensor<[12,16],f32>, !torch.vtensor<[4,16,8],f32>, !torch.vtensor<[12,16,16],f32>) {
  // CHECK-LABEL: func.func @step
  // CHECK: %[[IDS:.*]] = torch.operator "torch.shardc.expert_ids"(%arg2, %int4{{.*}}) {{.*}} -> !torch.vtensor<[12],si64>
  // CHECK: %[[W:.*]] = torch.aten.transpose.int %arg1, %int1{{.*}}, %int2{{.*}} -> !torch.vtensor<[4,8,16],f32>
  // CHECK: %[[Y:.*]] = torch.operator "torch.shardc.expert_mm"(%arg0, %[[W]], %[[IDS]], %int1{{.*}}, %float2.500000e-01)
  // CHECK-SAME: -> !torch.vtensor<[12,16],f32>
  // CHECK: %[[DW:.*]] = torch.operator "torch.shardc.expert_outer"(%arg3, %arg0, %[[IDS]], %int4{{.*}}, {{.*}} {dist.name = "grad:w"}
  // CHECK-SAME: -> !torch.vtensor<[4,16,8],f32>
  // CHECK: torch.aten.bmm
  // CHECK: return %[[Y]], %[[DW]]
  %none = torch.constant.none
  %true = torch.constant.bool true
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %int4 = torch.constant.int 4
  %int6 = torch.constant.int 6
  %int8 = torch.constant.int 8
  %int12 = torch.constant.int 12
  %int16 = torch.constant.int 16
  %list = torch.prim.ListConstruct %ids : (!torch.vtensor<[12],si64>) -> !torch.list<optional<vtensor>>
  %flat = torch.prim.ListConstruct %int12, %int16 : (!torch.int, !torch.int) -> !torch.list<int>
  %whole = torch.prim.ListConstruct %int4, %int16, %int8 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.index.Tensor %w, %list : !torch.vtensor<[4,16,8],f32>, !torch.list<optional<vtensor>> -> !torch.vtensor<[12,16,8],f32>
  %1 = torch.aten.unsqueeze %x, %int2 : !torch.vtensor<[12,8],f32>, !torch.int -> !torch.vtensor<[12,8,1],f32>
  %2 = torch.aten.bmm %0, %1 : !torch.vtensor<[12,16,8],f32>, !torch.vtensor<[12,8,1],f32> -> !torch.vtensor<[12,16,1],f32>
  %3 = torch.aten.view %2, %flat : !torch.vtensor<[12,16,1],f32>, !torch.list<int> -> !torch.vtensor<[12,16],f32>
  %4 = torch.aten.unsqueeze %dy, %int2 : !torch.vtensor<[12,16],f32>, !torch.int -> !torch.vtensor<[12,16,1],f32>
  %5 = torch.aten.transpose.int %1, %int1, %int2 : !torch.vtensor<[12,8,1],f32>, !torch.int, !torch.int -> !torch.vtensor<[12,1,8],f32>
  %6 = torch.aten.bmm %4, %5 : !torch.vtensor<[12,16,1],f32>, !torch.vtensor<[12,1,8],f32> -> !torch.vtensor<[12,16,8],f32>
  %7 = torch.aten.full %whole, %int0, %int6, %none, %none, %none : !torch.list<int>, !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4,16,8],f32>
  %8 = torch.aten.index_put %7, %list, %6, %true {dist.name = "grad:w"} : !torch.vtensor<[4,16,8],f32>, !torch.list<optional<vtensor>>, !torch.vtensor<[12,16,8],f32>, !torch.bool -> !torch.vtensor<[4,16,8],f32>
  %9 = torch.aten.transpose.int %0, %int1, %int2 : !torch.vtensor<[12,16,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[12,8,16],f32>
  %10 = torch.aten.bmm %0, %9 : !torch.vtensor<[12,16,8],f32>, !torch.vtensor<[12,8,16],f32> -> !torch.vtensor<[12,16,16],f32>
  return %3, %8, %10 : !torch.vtensor<[12,16],f32>, !torch.vtensor<[4,16,8],f32>, !torch.vtensor<[12,16,16],f32>
}
