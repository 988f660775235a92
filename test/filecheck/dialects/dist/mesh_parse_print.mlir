// RUN: shardc-opt --split-input-file %s | shardc-opt --split-input-file | filecheck %s

// CHECK: "dist.mesh"() {axes = {{\[}}["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()

// -----

// CHECK: "dist.mesh"() {axes = {{\[}}["data", 2, "space"], ["data/share", 4, "time", [3, 1]]], sym_name = "mesh"} : () -> ()
"dist.mesh"() {axes = [["data", 2, "space"], ["data/share", 4, "time", [3, 1]]], sym_name = "mesh"} : () -> ()
