// RUN: shardc-opt --dist-apply-plan=plan=zero1 %s | filecheck %s --check-prefixes=CHECK,ONE
// RUN: shardc-opt --dist-apply-plan=plan=zero2 %s | filecheck %s --check-prefixes=CHECK,TWO
// RUN: shardc-opt --dist-apply-plan=plan=zero3 %s | filecheck %s --check-prefixes=CHECK,THREE

// ZeRO is data parallel with the state cut too, in a later round so that it never gets in the way of other cuts:
// stage 1 refines the optimizer state, 2 the gradients too (on the op that makes one), 3 the parameters too.
// Scalars such as a step counter are never cut.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()

// CHECK-LABEL: func.func @step
// CHECK-SAME: %arg0: !torch.vtensor<[16,16],f32> {dist.name = "w"
// THREE-SAME: dist.refine = {{\[}}[1, "data", -1]], dist.role = "param"
// CHECK-SAME: %arg1: !torch.vtensor<[16,16],f32> {dist.name = "m", dist.refine = {{\[}}[1, "data", -1]]
// CHECK-SAME: %arg2: !torch.vtensor<[],f32> {dist.name = "t", dist.role = "opt_state"}
// CHECK-SAME: %arg3: {{[^%]*}}dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
func.func @step(
    %w: !torch.vtensor<[16,16],f32> {dist.role = "param", dist.name = "w"},
    %m: !torch.vtensor<[16,16],f32> {dist.role = "opt_state", dist.name = "m"},
    %t: !torch.vtensor<[],f32> {dist.role = "opt_state", dist.name = "t"},
    %x: !torch.vtensor<[8,16],f32> {dist.role = "input", dist.name = "x"}) -> !torch.vtensor<[16,16],f32> {
  %0 = torch.aten.t %x : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,8],f32>
  // ONE: torch.aten.mm {{.*}} {dist.name = "grad:w#0"} :
  // TWO: torch.aten.mm {{.*}} {dist.name = "grad:w#0", dist.refine = {{\[}}[1, "data", -1]]} :
  // THREE: torch.aten.mm {{.*}} {dist.name = "grad:w#0", dist.refine = {{\[}}[1, "data", -1]]} :
  %1 = torch.aten.mm %0, %x {dist.name = "grad:w#0"} : !torch.vtensor<[16,8],f32>, !torch.vtensor<[8,16],f32> -> !torch.vtensor<[16,16],f32>
  return %1 : !torch.vtensor<[16,16],f32>
}
