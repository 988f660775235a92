// RUN: shardc-opt %s --verify-diagnostics --split-input-file

"dist.mesh"() {axes = [["pipe", 1, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op an action is a stage, a kind (F, B, I, W) and a micro-batch, such as "2F0", not "0X0"}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["0X0"]], routes = [[0]], slices = 1 : i64} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 1, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op rank 0 runs 1F0, but no route goes through stage 1}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["1F0"]], routes = [[0]], slices = 1 : i64} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 2, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op runs 0F0 twice}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["0F0"], ["0F0"]], routes = [[0]], slices = 1 : i64} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 1, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op needs a route: the stages that micro-batches go through}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["0F0"]], routes = [], slices = 1 : i64} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 1, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op orders[0] must be a list, not "0F0"}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = ["0F0"], routes = [[0]], slices = 1 : i64} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 2, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op has the orders of 1 ranks; "pipe" must be a space axis of that size}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["0F0"]], routes = [[0]], slices = 1 : i64} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 1, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op rank 0 runs 0O0, but updates, not the orders, determine where optimizers run}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["0F0", "0B0", "0O0"]], routes = [[0]], slices = 1 : i64} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 1, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op updates must have every, at least 1, and may have delay, at least 0, not every = 0 : i64}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["0F0", "0B0"]], routes = [[0]], slices = 1 : i64, updates = {every = 0 : i64}} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 1, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op updates must have every, the number of micro-batches per update}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["0F0", "0B0"]], routes = [[0]], slices = 1 : i64, updates = {delay = 1 : i64}} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 1, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op 0F1 needs version 1 of its weights, but only 0 exist by then}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["0F0", "0F1", "0B0", "0B1"]], routes = [[0]], slices = 1 : i64, updates = {delay = 0 : i64, every = 1 : i64}} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 2, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op reads[1] must be stages before 1, in order, not [1]}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["0F0"], ["1F0"]], routes = [[0, 1]], slices = 1 : i64, reads = [[], [1]]} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 2, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op has reads of 1 stages; its one route must go through 0 to 0}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["0F0"], ["1F0"]], routes = [[0, 1]], slices = 1 : i64, reads = [[]]} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 2, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op has reads beside slices or updates, whose stages are a chain}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["0F0"], ["1F0"]], routes = [[0, 1]], slices = 1 : i64, updates = {every = 1 : i64}, reads = [[], [0]]} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 2, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op an eviction is written as in "0EVICT1 to 3, 0 until 2", not "0EVICT0"}}
"pipe.schedule"() {axis = "pipe", evictions = ["0EVICT0"], sym_name = "s", orders = [["0F0"], ["1F0"]], routes = [[0, 1]], slices = 1 : i64} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 2, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op 0EVICT0 to 2, 0 until 1: there are 2 ranks}}
"pipe.schedule"() {axis = "pipe", evictions = ["0EVICT0 to 2, 0 until 1"], sym_name = "s", orders = [["0F0"], ["1F0"]], routes = [[0, 1]], slices = 1 : i64} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 2, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op 5EVICT0 to 1, 0 until 1: no route goes through stage 5}}
"pipe.schedule"() {axis = "pipe", evictions = ["5EVICT0 to 1, 0 until 1"], sym_name = "s", orders = [["0F0"], ["1F0"]], routes = [[0, 1]], slices = 1 : i64} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 1, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op lengths must be the tokens of 2 slices, at least 1 each, not [5]}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["0F0", "0F1"]], routes = [[0]], slices = 2 : i64, lengths = [5]} : () -> ()

// -----

"dist.mesh"() {axes = [["pipe", 1, "space"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{'pipe.schedule' op lengths must be the tokens of 2 slices, at least 1 each, not [5, 0]}}
"pipe.schedule"() {axis = "pipe", sym_name = "s", orders = [["0F0", "0F1"]], routes = [[0]], slices = 2 : i64, lengths = [5, 0]} : () -> ()
