// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// CHECK-LABEL: @sums_and_rows
func.func @sums_and_rows(%zeros: !torch.vtensor<[1,8],f32>, %all: !torch.vtensor<[4,8],f32>) {
  %inits = torch.prim.TupleConstruct %zeros : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
  %captures = torch.prim.TupleConstruct %all : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // CHECK: %2:2 = "dist.loop"(%0, %1) ({
  // CHECK-NEXT: ^bb0(%arg2: !torch.vtensor<[1,8],f32>, %arg3: !torch.vtensor<[4,8],f32>):
  // CHECK: "dist.slice"(%arg3) {axes = ["micro"], dim = 0 : i64}
  // CHECK: "dist.yield"(%{{.*}}, %{{.*}}) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[1,8],f32>>, !torch.tuple<vtensor<[1,8],f32>>) -> ()
  // CHECK-NEXT: }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[1,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[1,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  %sums, %rows = "dist.loop"(%inits, %captures) ({
  ^bb0(%sum: !torch.vtensor<[1,8],f32>, %x: !torch.vtensor<[4,8],f32>):
    %one = torch.constant.int 1
    %row = "dist.slice"(%x) {axes = ["micro"], dim = 0} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,8],f32>
    %next = torch.aten.add.Tensor %sum, %row, %one : !torch.vtensor<[1,8],f32>, !torch.vtensor<[1,8],f32>, !torch.int -> !torch.vtensor<[1,8],f32>
    %carried = torch.prim.TupleConstruct %next : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
    %stacked = torch.prim.TupleConstruct %row : !torch.vtensor<[1,8],f32> -> !torch.tuple<vtensor<[1,8],f32>>
    "dist.yield"(%carried, %stacked) {operandSegmentSizes = array<i32: 1, 1>} : (!torch.tuple<vtensor<[1,8],f32>>, !torch.tuple<vtensor<[1,8],f32>>) -> ()
  }) {axis = "micro", operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>, stack_dims = [0]} : (!torch.tuple<vtensor<[1,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>) -> (!torch.tuple<vtensor<[1,8],f32>>, !torch.tuple<vtensor<[4,8],f32>>)
  return
}

// Groups that are empty are left out.
// CHECK-LABEL: @rows_alone
func.func @rows_alone(%all: !torch.vtensor<[4,8],f32>) {
  %captures = torch.prim.TupleConstruct %all : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
  // CHECK: %1 = "dist.loop"(%0) ({
  // CHECK: }) {axis = #dist.axis<"micro", 1 : i64, 2 : i64>, operandSegmentSizes = array<i32: 0, 1>, resultSegmentSizes = array<i32: 0, 1>, stack_dims = [1]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  %rows = "dist.loop"(%captures) ({
  ^bb0(%x: !torch.vtensor<[4,8],f32>):
    %stacked = torch.prim.TupleConstruct %x : !torch.vtensor<[4,8],f32> -> !torch.tuple<vtensor<[4,8],f32>>
    "dist.yield"(%stacked) {operandSegmentSizes = array<i32: 0, 1>} : (!torch.tuple<vtensor<[4,8],f32>>) -> ()
  }) {axis = #dist.axis<"micro", 1, 2>, operandSegmentSizes = array<i32: 0, 1>, resultSegmentSizes = array<i32: 0, 1>, stack_dims = [1]} : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,16],f32>>
  return
}
