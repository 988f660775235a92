// RUN: shardc-opt '--dist-apply-plan=plan=data mesh=data=2' %s | filecheck %s

// Plans are annotations on a few arguments; propagation does the rest. "data" cuts the batch of every input, which is
// the size that most inputs have in dim 0. Nothing is said of parameters: their gradients come out partial. Other
// inputs (%table) are whole, and closed: propagation never cuts an input.

// The option mesh gives a module without a dist.mesh one.
// CHECK: "dist.mesh"() {axes = {{\[}}["data", 2, "space"]], sym_name = "mesh"}

// CHECK-LABEL: func.func @step
// CHECK-SAME: {dist.name = "w", dist.role = "param"}
// CHECK-SAME: dist.name = "x"{{[^%]*}}dist.sharding = #dist.sharding<@mesh, {{\[}}["data"], []], []>
// CHECK-SAME: dist.name = "y"{{[^%]*}}dist.sharding = #dist.sharding<@mesh, {{\[}}["data"]], []>
// CHECK-SAME: dist.name = "table"{{[^%]*}}dist.sharding = #dist.sharding<@mesh, {{\[}}[], []], []>
// CHECK-SAME: {dist.name = "lr", dist.role = "hyper"}
func.func @step(
    %w: !torch.vtensor<[16,16],f32> {dist.role = "param", dist.name = "w"},
    %x: !torch.vtensor<[8,16],f32> {dist.role = "input", dist.name = "x"},
    %y: !torch.vtensor<[8],si64> {dist.role = "input", dist.name = "y"},
    %table: !torch.vtensor<[4,16],f32> {dist.role = "input", dist.name = "table"},
    %lr: !torch.vtensor<[],f32> {dist.role = "hyper", dist.name = "lr"}) -> !torch.vtensor<[8,16],f32> {
  %0 = torch.aten.mm %x, %w : !torch.vtensor<[8,16],f32>, !torch.vtensor<[16,16],f32> -> !torch.vtensor<[8,16],f32>
  return %0 : !torch.vtensor<[8,16],f32>
}
