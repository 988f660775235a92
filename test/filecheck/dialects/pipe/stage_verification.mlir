// RUN: shardc-opt %s --verify-diagnostics --split-input-file

// expected-error@+1 {{'pipe.stage' op kind must be one of F, B, I, W, O, UNSHARD, RESHARD, REDUCE_GRAD, not 'X'}}
"pipe.stage"() ({
  "pipe.yield"() : () -> ()
}) {index = 0 : i64, kind = "X", sym_name = "stage_0_X"} : () -> ()

// -----

// expected-error@+1 {{'pipe.stage' op must be named 'stage_1_F', not 'forward'}}
"pipe.stage"() ({
  "pipe.yield"() : () -> ()
}) {index = 1 : i64, kind = "F", sym_name = "forward"} : () -> ()

// -----

// expected-error@+1 {{'pipe.stage' op index is -1; it must be at least 0}}
"pipe.stage"() ({
  "pipe.yield"() : () -> ()
}) {index = -1 : i64, kind = "F", sym_name = "stage_-1_F"} : () -> ()

// -----

// expected-error@+1 {{'pipe.stage' op body argument 0 must be a value tensor with static shape, such as !torch.vtensor<[4,8],f32>, not !torch.int}}
"pipe.stage"() ({
^bb0(%x: !torch.int):
  "pipe.yield"() : () -> ()
}) {index = 0 : i64, kind = "F", sym_name = "stage_0_F"} : () -> ()

// -----

"pipe.stage"() ({
^bb0(%x: !torch.vtensor<[4],f32>):
  // expected-error@+1 {{'pipe.yield' op takes a tuple of values (torch.prim.TupleConstruct), not !torch.vtensor<[4],f32>}}
  "pipe.yield"(%x) : (!torch.vtensor<[4],f32>) -> ()
}) {index = 0 : i64, kind = "F", sym_name = "stage_0_F"} : () -> ()

// -----

func.func @f() {
  // expected-error@+1 {{'pipe.yield' op must end the body of a pipe.stage}}
  "pipe.yield"() : () -> ()
}

// -----

// expected-error@+1 {{'pipe.stage' op must be named 'stage_0_F_2', not 'stage_0_F'}}
"pipe.stage"() ({
  "pipe.yield"() : () -> ()
}) {index = 0 : i64, kind = "F", slice = 2 : i64, sym_name = "stage_0_F"} : () -> ()

// -----

// expected-error@+1 {{'pipe.stage' op has 0 arguments and 0 results, of which 1 cannot be sums}}
"pipe.stage"() ({
  "pipe.yield"() : () -> ()
}) {index = 0 : i64, kind = "F", sums = 1 : i64, sym_name = "stage_0_F"} : () -> ()
