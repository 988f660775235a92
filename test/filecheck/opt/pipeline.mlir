// RUN: shardc-opt %s --pipeline 'builtin.module(func.func(cse),symbol-dce)' | filecheck %s
// RUN: shardc-opt --cse --canonicalize=max-iterations=2 %s | filecheck %s
// RUN: shardc-opt --cse < %s | filecheck %s
// RUN: not shardc-opt --cze %s 2>&1 | filecheck %s --check-prefix=UNKNOWN

// CHECK-LABEL: func.func @twice
// CHECK: %[[SUM:.*]] = arith.addi
// CHECK-NEXT: arith.muli %[[SUM]], %[[SUM]]
func.func @twice(%a: i32, %b: i32) -> i32 {
  %0 = arith.addi %a, %b : i32
  %1 = arith.addi %a, %b : i32
  %2 = arith.muli %0, %1 : i32
  return %2 : i32
}

// UNKNOWN: UnknownPass: there is no pass or pipeline 'cze'; did you mean cse?
