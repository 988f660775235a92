// RUN: shardc-opt %s | shardc-opt | filecheck %s

// CHECK: "dist.mesh"() {axes = {{\[}}["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
