// RUN: shardc-opt --kern-extern --split-input-file %s | filecheck %s
// RUN: shardc-opt --kern-extern=library=aten --split-input-file %s | filecheck %s --check-prefix=ATEN
// ATEN-NOT: kern.extern

// A linear layer's bias and activation: the weight is read as it lies in memory, the result is seen in its shape again.
// CHECK-LABEL: func.func @linear
// CHECK-SAME: %arg0: !torch.vtensor<[6,8],f32>, %arg1: !torch.vtensor<[16,8],f32>, %arg2: !torch.vtensor<[16],f32>
// CHECK: %[[IN:.*]] = torch.prim.TupleConstruct %arg0, %arg1, %arg2
// CHECK-NEXT: %[[OUT:.*]] = "kern.extern"(%[[IN]]) {arguments = {algorithm = "tanh", attr = "gelu", scalars = []}, dist.phase = "forward", reads = ["X", "W", "B"], target = "mkldnn._linear_pointwise"}
// CHECK-NEXT: %[[Y:.*]] = torch.prim.TupleUnpack %[[OUT]]
// CHECK-NEXT: %[[V:.*]] = torch.aten.view %[[Y]], {{.*}} {dist.name = "hidden"}
// CHECK-NEXT: return %[[V]]
func.func @linear(%x: !torch.vtensor<[6,8],f32>, %w: !torch.vtensor<[16,8],f32>, %b: !torch.vtensor<[16],f32>) -> !torch.vtensor<[2,3,16],f32> {
  %one = torch.constant.int 1
  %tanh = torch.constant.str "tanh"
  %two = torch.constant.int 2
  %three = torch.constant.int 3
  %sixteen = torch.constant.int 16
  %shape = torch.prim.ListConstruct %two, %three, %sixteen : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %t = torch.aten.t %w : !torch.vtensor<[16,8],f32> -> !torch.vtensor<[8,16],f32>
  %0 = torch.aten.addmm %b, %x, %t, %one, %one : !torch.vtensor<[16],f32>, !torch.vtensor<[6,8],f32>, !torch.vtensor<[8,16],f32>, !torch.int, !torch.int -> !torch.vtensor<[6,16],f32>
  %1 = torch.aten.view %0, %shape : !torch.vtensor<[6,16],f32>, !torch.list<int> -> !torch.vtensor<[2,3,16],f32>
  %2 = torch.aten.gelu %1, %tanh {dist.phase = "forward", dist.name = "hidden"} : !torch.vtensor<[2,3,16],f32>, !torch.str -> !torch.vtensor<[2,3,16],f32>
  return %2 : !torch.vtensor<[2,3,16],f32>
}

// -----

// A gradient's matmul: what is not transposed in the program is transposed here. The second reader keeps the sum apart.
// CHECK-LABEL: func.func @read_twice
// CHECK: %[[T:.*]] = torch.aten.t %arg1
// CHECK: torch.prim.TupleConstruct %arg0, %[[T]]
// CHECK: arguments = {algorithm = "", attr = "none", scalars = []}
// CHECK: torch.aten.add.Tensor
func.func @read_twice(%x: !torch.vtensor<[6,8],f32>, %w: !torch.vtensor<[8,4],f32>, %r: !torch.vtensor<[6,4],f32>) -> (!torch.vtensor<[6,4],f32>, !torch.vtensor<[6,4],f32>) {
  %one = torch.constant.int 1
  %0 = torch.aten.mm %x, %w : !torch.vtensor<[6,8],f32>, !torch.vtensor<[8,4],f32> -> !torch.vtensor<[6,4],f32>
  %1 = torch.aten.add.Tensor %r, %0, %one : !torch.vtensor<[6,4],f32>, !torch.vtensor<[6,4],f32>, !torch.int -> !torch.vtensor<[6,4],f32>
  return %0, %1 : !torch.vtensor<[6,4],f32>, !torch.vtensor<[6,4],f32>
}

// -----

// A residual is added inside.
// CHECK-LABEL: func.func @residual
// CHECK: torch.prim.TupleConstruct %arg0, %arg2, %arg1
// CHECK-NEXT: "kern.extern"(%{{.*}}) {arguments = {attr = "add"}, reads = ["X", "other", "W"], target = "mkldnn._linear_pointwise.binary"}
// CHECK-NOT: torch.aten
func.func @residual(%x: !torch.vtensor<[6,8],f32>, %w: !torch.vtensor<[4,8],f32>, %r: !torch.vtensor<[6,4],f32>) -> !torch.vtensor<[6,4],f32> {
  %one = torch.constant.int 1
  %t = torch.aten.t %w : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[8,4],f32>
  %0 = torch.aten.mm %x, %t : !torch.vtensor<[6,8],f32>, !torch.vtensor<[8,4],f32> -> !torch.vtensor<[6,4],f32>
  %1 = torch.aten.add.Tensor %r, %0, %one : !torch.vtensor<[6,4],f32>, !torch.vtensor<[6,4],f32>, !torch.int -> !torch.vtensor<[6,4],f32>
  return %1 : !torch.vtensor<[6,4],f32>
}

// -----

// What libraries compute otherwise than eager stays: relu (of NaN), other factors, f64, no elements.
// CHECK-LABEL: func.func @aten
// CHECK: attr = "none"
// CHECK: torch.aten.relu
// CHECK: torch.aten.addmm
// CHECK: torch.aten.mm
// CHECK: torch.aten.mm
// CHECK-NOT: kern.extern
func.func @aten(%x: !torch.vtensor<[6,8],f32>, %w: !torch.vtensor<[8,4],f32>, %b: !torch.vtensor<[4],f32>, %d: !torch.vtensor<[4,4],f64>, %e: !torch.vtensor<[0,8],f32>)
    -> (!torch.vtensor<[6,4],f32>, !torch.vtensor<[6,4],f32>, !torch.vtensor<[4,4],f64>, !torch.vtensor<[0,4],f32>) {
  %one = torch.constant.int 1
  %two = torch.constant.int 2
  %0 = torch.aten.mm %x, %w : !torch.vtensor<[6,8],f32>, !torch.vtensor<[8,4],f32> -> !torch.vtensor<[6,4],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[6,4],f32> -> !torch.vtensor<[6,4],f32>
  %2 = torch.aten.addmm %b, %x, %w, %two, %one : !torch.vtensor<[4],f32>, !torch.vtensor<[6,8],f32>, !torch.vtensor<[8,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[6,4],f32>
  %3 = torch.aten.mm %d, %d : !torch.vtensor<[4,4],f64>, !torch.vtensor<[4,4],f64> -> !torch.vtensor<[4,4],f64>
  %4 = torch.aten.mm %e, %w : !torch.vtensor<[0,8],f32>, !torch.vtensor<[8,4],f32> -> !torch.vtensor<[0,4],f32>
  return %1, %2, %3, %4 : !torch.vtensor<[6,4],f32>, !torch.vtensor<[6,4],f32>, !torch.vtensor<[4,4],f64>, !torch.vtensor<[0,4],f32>
}

// -----

// Any number of rows; a sum over them stays with ATen, for oneDNN takes none of no terms.
#rows = affine_map<()[s0] -> (s0, 8)>
#made = affine_map<()[s0] -> (s0, 16)>
#turned = affine_map<()[s0] -> (8, s0)>

// CHECK-LABEL: func.func @any_rows
// CHECK: %[[IN:.*]] = torch.prim.TupleConstruct %arg0, %arg1
// CHECK-NEXT: "kern.extern"(%[[IN]])
// CHECK-NOT: kern.extern
// CHECK: torch.aten.mm
func.func @any_rows(%x: !torch.vtensor<[?,8],f32> {dist.shape = #rows}, %w: !torch.vtensor<[16,8],f32>) -> !torch.vtensor<[8,16],f32> attributes {dist.symbols = array<i64: 6>} {
  %t = torch.aten.t %w : !torch.vtensor<[16,8],f32> -> !torch.vtensor<[8,16],f32>
  %0 = torch.aten.mm %x, %t {dist.shapes = [#made]} : !torch.vtensor<[?,8],f32>, !torch.vtensor<[8,16],f32> -> !torch.vtensor<[?,16],f32>
  %1 = torch.aten.t %x {dist.shapes = [#turned]} : !torch.vtensor<[?,8],f32> -> !torch.vtensor<[8,?],f32>
  %2 = torch.aten.mm %1, %0 : !torch.vtensor<[8,?],f32>, !torch.vtensor<[?,16],f32> -> !torch.vtensor<[8,16],f32>
  return %2 : !torch.vtensor<[8,16],f32>
}
