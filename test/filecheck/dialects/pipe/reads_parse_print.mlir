// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["pipe", 3, "space"]], sym_name = "mesh"} : () -> ()

// CHECK: "pipe.schedule"() {axis = "pipe", orders = {{\[\[}}"0F0", "0B0"], ["1F0", "1B0"], ["2F0", "2B0"]], reads = {{\[\[}}], [], [0, 1]], routes = {{\[\[}}0, 1, 2]], slices = 1 : i64, sym_name = "1f1b"} : () -> ()
"pipe.schedule"() {axis = "pipe", sym_name = "1f1b", orders = [["0F0", "0B0"], ["1F0", "1B0"], ["2F0", "2B0"]], routes = [[0, 1, 2]], slices = 1 : i64, reads = [[], [], [0, 1]]} : () -> ()
