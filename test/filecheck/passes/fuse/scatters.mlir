// RUN: shardc-opt --kern-fuse --split-input-file %s | filecheck %s

// The gradient of an embedding is added to the other one of a tied weight, in its memory; transposes that undo one another go.
// CHECK-LABEL: func.func @step
// CHECK: %[[MM:.*]] = torch.aten.mm
// CHECK-NEXT: %[[IN:.*]] = torch.prim.TupleConstruct %arg1, %arg2, %[[MM]] :
// CHECK-NEXT: %[[K:.*]] = "kern.kernel"(%[[IN]])
// CHECK-NEXT: ^bb0(%[[INDEX:.*]]: tensor<2x4xi64>, %[[UPDATES:.*]]: tensor<2x4x64xf32>, %[[INIT:.*]]: tensor<100x64xf32>):
// CHECK-NEXT: "kern.scatter_add"(%[[INDEX]], %[[UPDATES]], %[[INIT]]) {dim = 0 : i64, ignored = 3 : i64}
// CHECK: in_place = array<i64: 0, 2>
// CHECK-SAME: kern.ops = ["aten.embedding_dense_backward", "aten.add.Tensor"]
// CHECK-NEXT: %[[OUT:.*]] = torch.prim.TupleUnpack %[[K]] {dist.name = "grad:w#0"}
// CHECK-NEXT: return %[[OUT]]
func.func @step(%a: !torch.vtensor<[64,100],f32>, %i: !torch.vtensor<[2,4],si64>, %u: !torch.vtensor<[2,4,64],f32>, %b: !torch.vtensor<[64,64],f32>) -> !torch.vtensor<[100,64],f32> {
  %rows = torch.constant.int 100
  %padding = torch.constant.int 3
  %false = torch.constant.bool false
  %one = torch.constant.int 1
  %0 = torch.aten.t %a : !torch.vtensor<[64,100],f32> -> !torch.vtensor<[100,64],f32>
  %1 = torch.aten.mm %0, %b : !torch.vtensor<[100,64],f32>, !torch.vtensor<[64,64],f32> -> !torch.vtensor<[100,64],f32>
  %2 = torch.aten.t %1 : !torch.vtensor<[100,64],f32> -> !torch.vtensor<[64,100],f32>
  %3 = torch.aten.t %2 : !torch.vtensor<[64,100],f32> -> !torch.vtensor<[100,64],f32>
  %4 = torch.aten.embedding_dense_backward %u, %i, %rows, %padding, %false : !torch.vtensor<[2,4,64],f32>, !torch.vtensor<[2,4],si64>, !torch.int, !torch.int, !torch.bool -> !torch.vtensor<[100,64],f32>
  %5 = torch.aten.add.Tensor %3, %4, %one {dist.name = "grad:w"} : !torch.vtensor<[100,64],f32>, !torch.vtensor<[100,64],f32>, !torch.int -> !torch.vtensor<[100,64],f32>
  return %5 : !torch.vtensor<[100,64],f32>
}

// -----

// Sums into zeros start from nothing, and a wrong index is an error. Into an argument they do not go.
// CHECK-LABEL: func.func @step
// CHECK-NOT: torch.aten.zeros
// CHECK: %[[IN:.*]] = torch.prim.TupleConstruct %arg1, %arg2 :
// CHECK: "kern.scatter_add"(%{{.*}}, %{{.*}}) {dim = 0 : i64, wraps} : (tensor<8xi64>, tensor<8x64xf32>)
// CHECK: kern.checks = {{\[\[}}1, "index {} is out of bounds for dimension 0 with size 100"]]
// CHECK: %[[INTO:.*]] = torch.prim.TupleConstruct %arg1, %arg2, %arg0 :
// CHECK: "kern.scatter_add"(%{{.*}}, %{{.*}}, %{{.*}}) {dim = 0 : i64, wraps}
// CHECK-NOT: in_place
func.func @step(%t: !torch.vtensor<[100,64],f32>, %i: !torch.vtensor<[8],si64>, %u: !torch.vtensor<[8,64],f32>) -> (!torch.vtensor<[100,64],f32>, !torch.vtensor<[100,64],f32>) {
  %none = torch.constant.none
  %true = torch.constant.bool true
  %rows = torch.constant.int 100
  %width = torch.constant.int 64
  %shape = torch.prim.ListConstruct %rows, %width : (!torch.int, !torch.int) -> !torch.list<int>
  %indices = torch.prim.ListConstruct %i : (!torch.vtensor<[8],si64>) -> !torch.list<optional<vtensor>>
  %0 = torch.aten.zeros %shape, %none, %none, %none, %none : !torch.list<int>, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[100,64],f32>
  %1 = torch.aten.index_put %0, %indices, %u, %true : !torch.vtensor<[100,64],f32>, !torch.list<optional<vtensor>>, !torch.vtensor<[8,64],f32>, !torch.bool -> !torch.vtensor<[100,64],f32>
  %2 = torch.aten.index_put %t, %indices, %u, %true : !torch.vtensor<[100,64],f32>, !torch.list<optional<vtensor>>, !torch.vtensor<[8,64],f32>, !torch.bool -> !torch.vtensor<[100,64],f32>
  return %1, %2 : !torch.vtensor<[100,64],f32>, !torch.vtensor<[100,64],f32>
}

// -----

// A gradient keeps its layout on the mesh; the largest wrong index beside it has none that anyone says.
"dist.mesh"() {sym_name = "mesh", axes = [["experts", 2, "space"]]} : () -> ()
// CHECK-LABEL: func.func @step
// CHECK: kern.scatter_add
// CHECK: torch.prim.TupleUnpack %{{.*}} {dist.name = "grad:w#0", dist.shardings = [#dist.sharding<@mesh, {{\[\[}}], []], {{\[\[}}"sum", "experts"]]>, unit]}
func.func @step(%i: !torch.vtensor<[8],si64>, %u: !torch.vtensor<[8,64],f32>) -> !torch.vtensor<[100,64],f32> {
  %none = torch.constant.none
  %true = torch.constant.bool true
  %rows = torch.constant.int 100
  %width = torch.constant.int 64
  %shape = torch.prim.ListConstruct %rows, %width : (!torch.int, !torch.int) -> !torch.list<int>
  %indices = torch.prim.ListConstruct %i : (!torch.vtensor<[8],si64>) -> !torch.list<optional<vtensor>>
  %0 = torch.aten.zeros %shape, %none, %none, %none, %none : !torch.list<int>, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[100,64],f32>
  %1 = torch.aten.index_put %0, %indices, %u, %true {dist.name = "grad:w", dist.shardings = [#dist.sharding<@mesh, [[], []], [["sum", "experts"]]>]} : !torch.vtensor<[100,64],f32>, !torch.list<optional<vtensor>>, !torch.vtensor<[8,64],f32>, !torch.bool -> !torch.vtensor<[100,64],f32>
  return %1 : !torch.vtensor<[100,64],f32>
}
