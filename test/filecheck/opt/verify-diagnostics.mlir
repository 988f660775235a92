// RUN: shardc-opt --split-input-file --verify-diagnostics %s | filecheck %s
// RUN: not shardc-opt --split-input-file %s 2>&1 | filecheck %s --check-prefix=PLAIN

func.func @wrong_type(%a: i32) -> i64 {
  // expected-error@+1 {{type of return operand 0 ('i32') doesn't match function result type ('i64')}}
  return %a : i32
}

// PLAIN: MalformedMlir: type of return operand 0
// PLAIN-NEXT: return %a : i32
// PLAIN-NEXT: {{ *\^$}}
// PLAIN-NEXT: at: {{.*}}verify-diagnostics.mlir:6:3

// -----

// The part that is right is printed.
// CHECK: func.func @right
func.func @right() {
  return
}

// -----

func.func @syntax(%a: i32) {
  return %b : i32
  // expected-error@above {{use of undeclared SSA value name}}
}
