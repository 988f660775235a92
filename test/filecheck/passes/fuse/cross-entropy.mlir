// RUN: shardc-opt --kern-fuse %s | filecheck %s

// Cross entropy: the loss reads one element of each row that is made, and no probabilities are results.
// CHECK-LABEL: func.func @cross_entropy
// CHECK: "kern.kernel"
// CHECK: math.exp
// CHECK: math.log
// CHECK: %[[LOGS:.*]] = linalg.generic
// CHECK: tensor.extract %[[LOGS]]
// CHECK: kern.checks = {{\[\[}}0, "Target {} is out of bounds."]]
// CHECK-SAME: -> !torch.tuple<vtensor<[1],si64>, vtensor<[],f32>>
// CHECK-NOT: torch.aten
func.func @cross_entropy(%x: !torch.vtensor<[6,5],f32>, %t: !torch.vtensor<[6],si64>) -> !torch.vtensor<[],f32> {
  %one = torch.constant.int 1
  %ignored = torch.constant.int -100
  %none = torch.constant.none
  %false = torch.constant.bool false
  %logs = torch.aten._log_softmax %x, %one, %false : !torch.vtensor<[6,5],f32>, !torch.int, !torch.bool -> !torch.vtensor<[6,5],f32>
  %loss, %total = torch.aten.nll_loss_forward %logs, %t, %none, %one, %ignored : !torch.vtensor<[6,5],f32>, !torch.vtensor<[6],si64>, !torch.none, !torch.int, !torch.int -> !torch.vtensor<[],f32>, !torch.vtensor<[],f32>
  return %loss : !torch.vtensor<[],f32>
}
