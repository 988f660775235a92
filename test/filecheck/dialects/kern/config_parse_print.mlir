// RUN: shardc-opt %s | shardc-opt | filecheck %s

// CHECK-LABEL: func.func @f() attributes {kern.example = #kern.config<{rows = 4 : i64, vector = 16 : i64}>}
func.func @f() attributes {kern.example = #kern.config<{vector = 16, rows = 4}>} {
  return
}

// CHECK-LABEL: func.func @default() attributes {kern.example = #kern.config<{}>}
func.func @default() attributes {kern.example = #kern.config<{}>} {
  return
}
