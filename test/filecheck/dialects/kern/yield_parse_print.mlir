// RUN: shardc-opt %s | shardc-opt | filecheck %s

// CHECK-LABEL: @identity
func.func @identity(%0: !torch.vtensor<[4],bf16>) -> !torch.vtensor<[4],bf16> {
  %ins = torch.prim.TupleConstruct %0 : !torch.vtensor<[4],bf16> -> !torch.tuple<vtensor<[4],bf16>>
  %outs = "kern.kernel"(%ins) ({
  // CHECK: ^bb0(%[[X:.*]]: tensor<4xbf16>):
  ^bb0(%x: tensor<4xbf16>):
    // CHECK-NEXT: %[[T:.*]] = builtin.unrealized_conversion_cast %[[X]] : tensor<4xbf16> to tuple<tensor<4xbf16>>
    // CHECK-NEXT: "kern.yield"(%[[T]]) : (tuple<tensor<4xbf16>>) -> ()
    %t = builtin.unrealized_conversion_cast %x : tensor<4xbf16> to tuple<tensor<4xbf16>>
    "kern.yield"(%t) : (tuple<tensor<4xbf16>>) -> ()
  }) {kern.name = "identity"} : (!torch.tuple<vtensor<[4],bf16>>) -> !torch.tuple<vtensor<[4],bf16>>
  %y = torch.prim.TupleUnpack %outs : !torch.tuple<vtensor<[4],bf16>> -> !torch.vtensor<[4],bf16>
  return %y : !torch.vtensor<[4],bf16>
}
