// RUN: shardc-opt %s --verify-diagnostics --split-input-file

func.func @f(%x: !torch.vtensor<[4],f32>) {
  // expected-error@+1 {{'pipe.send' op is about a tuple of values (torch.prim.TupleConstruct), not !torch.vtensor<[4],f32>}}
  "pipe.send"(%x) {tag = "1F0", to = 1 : i64} : (!torch.vtensor<[4],f32>) -> ()
  return
}

// -----

func.func @f(%x: !torch.tuple<vtensor<[4],f32>>) {
  // expected-error@+1 {{'pipe.send' op to is -1; it must be at least 0}}
  "pipe.send"(%x) {tag = "1F0", to = -1 : i64} : (!torch.tuple<vtensor<[4],f32>>) -> ()
  return
}

// -----

func.func @f() {
  // expected-error@+1 {{'pipe.receive' op needs a tag that is not empty}}
  %0 = "pipe.receive"() {tag = "", source = 1 : i64} : () -> !torch.tuple<vtensor<[4],f32>>
  return
}
