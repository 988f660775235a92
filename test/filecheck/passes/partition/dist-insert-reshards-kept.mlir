// RUN: shardc-opt --pipeline 'dist-propagate,dist-insert-reshards{reshard-after-forward=false}' %s | filecheck %s

// Parameters that are stored in pieces are gathered once, for forward and backward.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

func.func @kept_after_forward(
    %x: !torch.vtensor<[8,16],f32> {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [["data"], []], []>},
    %w: !torch.vtensor<[16,16],f32> {dist.role = "param", dist.name = "w", dist.refine = [[1, "data", -1]]}) -> (!torch.vtensor<[16,16],f32> {dist.role = "param", dist.name = "w"}) {
  // CHECK-LABEL: func.func @kept_after_forward
  // CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
  // CHECK-SAME: dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
  // CHECK: %0 = "dist.reshard"(%arg1) {dist.phase = "forward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], []>], sharding = #dist.sharding<@mesh, {{\[}}[], []], []>}
  // CHECK-NEXT: %1 = torch.aten.mm %arg0, %0 {dist.phase = "forward", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: %2 = torch.aten.relu %1 {dist.phase = "forward", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: %3 = torch.aten.mm %2, %0 {dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: %4 = torch.aten.t %arg0 {dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], ["data"]], []>]}
  // CHECK-NEXT: %5 = torch.aten.mm %4, %3 {dist.name = "grad:w#0", dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}[], []], {{\[}}["sum", "data"]]>]}
  // CHECK-NEXT: %6 = "dist.reshard"(%5) {dist.phase = "backward", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>], sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>}
  // CHECK-NEXT: %7 = torch.aten.sub.Tensor %arg1, %6, %int1 {dist.phase = "optimizer", dist.shardings = [#dist.sharding<@mesh, {{\[}}["data"], []], []>]}
  // CHECK-NEXT: return %7
  %int1 = torch.constant.int 1
  %0 = torch.aten.mm %x, %w {dist.phase = "forward"} : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = torch.aten.relu %0 {dist.phase = "forward"} : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  %2 = torch.aten.mm %1, %w {dist.phase = "backward"} : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  %3 = torch.aten.t %x {dist.phase = "backward"} : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,8],f32>
  %4 = torch.aten.mm %3, %2 {dist.phase = "backward", dist.name = "grad:w#0"} : !torch.vtensor<[16,8],f32>, !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,16],f32>
  %5 = torch.aten.sub.Tensor %w, %4, %int1 {dist.phase = "optimizer"} : !torch.vtensor<[16,16],f32>, !torch.vtensor<[16,16],f32>, !torch.int -> !torch.vtensor<[16,16],f32>
  return %5 : !torch.vtensor<[16,16],f32>
}
