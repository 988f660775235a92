// RUN: shardc-opt --pipeline 'dist-search{cluster=h100}' %s | filecheck %s

// Rows are shared out: that sends nothing, and each device does an eighth of the work.

"dist.mesh"() {sym_name = "mesh", axes = [["x", 8, "space"]]} : () -> ()

// CHECK-LABEL: func.func @step
// CHECK-SAME: %arg0: {{.*}}dist.sharding = #dist.sharding<@mesh, {{\[\["x"\], \[\]\]}}, []>{{.*}}dist.why = "searched"
func.func @step(
    %x: !torch.vtensor<[32768,8192],bf16> {dist.role = "input", dist.name = "x"},
    %w: !torch.vtensor<[8192,8192],bf16> {dist.role = "buffer", dist.name = "w"})
    -> (!torch.vtensor<[32768,8192],bf16> {dist.role = "output", dist.name = "y"}) {
  // CHECK: torch.aten.mm {{.*}}dist.cuts = {a = ["x"]}
  %0 = torch.aten.mm %x, %w {dist.phase = "forward"} : !torch.vtensor<[32768,8192],bf16>, !torch.vtensor<[8192,8192],bf16> -> !torch.vtensor<[32768,8192],bf16>
  return %0 : !torch.vtensor<[32768,8192],bf16>
}
