// RUN: shardc-opt --torch-share='creations=false' %s | filecheck %s --check-prefix=APART
// RUN: shardc-opt --pipeline 'torch-share{creations=false},dist-propagate,dist-insert-reshards,dist-partition' %s | filecheck %s --check-prefix=RANK

// The numbers of four sequences are also the positions of four tokens. Before layouts are chosen they are two tensors,
// of which one is cut with the batch; in the rank program, what came to lie alike is one.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"]]} : () -> ()

// APART-LABEL: func.func @step
// APART: torch.aten.arange %int4{{.*}} {dist.apart = 0 : i64}
// APART: torch.aten.arange %int4{{.*}} {dist.apart = 1 : i64}
// APART: torch.aten.arange %int4{{.*}} {dist.apart = 2 : i64}
// RANK-LABEL: func.func @step
// RANK-NOT: dist.all_gather
// RANK-DAG: torch.aten.arange %int4
// RANK-DAG: torch.aten.arange %int2
// RANK-NOT: torch.aten.arange
func.func @step(
    %x: !torch.vtensor<[4,4],si64> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>})
    -> (!torch.vtensor<[4,4],si64> {dist.sharding = #dist.sharding<@mesh, [["data"], []], []>}) {
  %int4 = torch.constant.int 4
  %int1 = torch.constant.int 1
  %none = torch.constant.none
  %0 = torch.aten.arange %int4, %int4, %none, %none, %none : !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4],si64>
  %1 = torch.aten.unsqueeze %0, %int1 : !torch.vtensor<[4],si64>, !torch.int -> !torch.vtensor<[4,1],si64>
  %2 = torch.aten.add.Tensor %x, %1, %int1 : !torch.vtensor<[4,4],si64>, !torch.vtensor<[4,1],si64>, !torch.int -> !torch.vtensor<[4,4],si64>
  %3 = torch.aten.arange %int4, %int4, %none, %none, %none : !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4],si64>
  %4 = torch.aten.mul.Tensor %x, %3 : !torch.vtensor<[4,4],si64>, !torch.vtensor<[4],si64> -> !torch.vtensor<[4,4],si64>
  %5 = torch.aten.arange %int4, %int4, %none, %none, %none : !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4],si64>
  %6 = torch.aten.sub.Tensor %x, %5, %int1 : !torch.vtensor<[4,4],si64>, !torch.vtensor<[4],si64>, !torch.int -> !torch.vtensor<[4,4],si64>
  %7 = torch.aten.mul.Tensor %2, %4 : !torch.vtensor<[4,4],si64>, !torch.vtensor<[4,4],si64> -> !torch.vtensor<[4,4],si64>
  %8 = torch.aten.mul.Tensor %7, %6 : !torch.vtensor<[4,4],si64>, !torch.vtensor<[4,4],si64> -> !torch.vtensor<[4,4],si64>
  return %8 : !torch.vtensor<[4,4],si64>
}
