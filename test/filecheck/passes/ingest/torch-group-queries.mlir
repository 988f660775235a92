// RUN: shardc-opt --pipeline torch-group-queries,torch-share %s | filecheck %s

// Keys and values of two heads are repeated for four heads of queries. Attention takes them as they are.
func.func @rows(%q: !torch.vtensor<[1,4,3,8],f32>, %k: !torch.vtensor<[1,2,5,8],f32>, %v: !torch.vtensor<[1,2,5,8],f32>)
    -> !torch.vtensor<[1,4,3,8],f32> {
  // CHECK-LABEL: func.func @rows
  // CHECK-NOT: torch.aten.expand
  // CHECK: %[[OUT:.*]]:2 = torch.operator "torch.aten._scaled_dot_product_flash_attention_for_cpu"(%arg0, %arg1, %arg2,
  // CHECK: return %[[OUT]]#0
  %none = torch.constant.none
  %false = torch.constant.bool false
  %zero = torch.constant.float 0.0
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %int4 = torch.constant.int 4
  %int5 = torch.constant.int 5
  %int8 = torch.constant.int 8
  %wide = torch.prim.ListConstruct %int1, %int2, %int2, %int5, %int8 : (!torch.int, !torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %flat = torch.prim.ListConstruct %int1, %int4, %int5, %int8 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %k0 = torch.aten.unsqueeze %k, %int2 : !torch.vtensor<[1,2,5,8],f32>, !torch.int -> !torch.vtensor<[1,2,1,5,8],f32>
  %k1 = torch.aten.expand %k0, %wide, %false : !torch.vtensor<[1,2,1,5,8],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[1,2,2,5,8],f32>
  %k2 = torch.aten.clone %k1, %none : !torch.vtensor<[1,2,2,5,8],f32>, !torch.none -> !torch.vtensor<[1,2,2,5,8],f32>
  %k3 = torch.aten.view %k2, %flat : !torch.vtensor<[1,2,2,5,8],f32>, !torch.list<int> -> !torch.vtensor<[1,4,5,8],f32>
  %v0 = torch.aten.unsqueeze %v, %int2 : !torch.vtensor<[1,2,5,8],f32>, !torch.int -> !torch.vtensor<[1,2,1,5,8],f32>
  %v1 = torch.aten.expand %v0, %wide, %false : !torch.vtensor<[1,2,1,5,8],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[1,2,2,5,8],f32>
  %v2 = torch.aten.view %v1, %flat : !torch.vtensor<[1,2,2,5,8],f32>, !torch.list<int> -> !torch.vtensor<[1,4,5,8],f32>
  %out, %lse = torch.operator "torch.aten._scaled_dot_product_flash_attention_for_cpu"(%q, %k3, %v2, %zero, %false, %none, %none)
    : (!torch.vtensor<[1,4,3,8],f32>, !torch.vtensor<[1,4,5,8],f32>, !torch.vtensor<[1,4,5,8],f32>, !torch.float, !torch.bool, !torch.none, !torch.none)
    -> (!torch.vtensor<[1,4,3,8],f32>, !torch.vtensor<[1,4,3],f32>)
  return %out : !torch.vtensor<[1,4,3,8],f32>
}
