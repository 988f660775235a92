// RUN: shardc-opt %s | shardc-opt | filecheck %s

"dist.mesh"() {axes = [["pipe", 2, "space"]], sym_name = "mesh"} : () -> ()

// CHECK: "pipe.schedule"() {axis = "pipe", evictions = ["0EVICT1 to 1, 0 until 2"], orders =
"pipe.schedule"() {axis = "pipe", evictions = ["0EVICT1 to 1, 0 until 2"], sym_name = "s", orders = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]], routes = [[0, 1]], slices = 1 : i64} : () -> ()
