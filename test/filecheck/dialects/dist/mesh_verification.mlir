// RUN: shardc-opt %s --verify-diagnostics --split-input-file

// expected-error@+1 {{mesh has no axes}}
"dist.mesh"() {axes = [], sym_name = "mesh"} : () -> ()

// -----

// expected-error@+1 {{a mesh axis is ["name", size, "space" or "time"], not ["data", 2]}}
"dist.mesh"() {axes = [["data", 2]], sym_name = "mesh"} : () -> ()

// -----

// expected-error@+1 {{a mesh axis is ["name", size, "space" or "time"], not "data"}}
"dist.mesh"() {axes = ["data"], sym_name = "mesh"} : () -> ()

// -----

// expected-error@+1 {{mesh axis 'data' is named twice}}
"dist.mesh"() {axes = [["data", 2, "space"], ["data", 4, "space"]], sym_name = "mesh"} : () -> ()

// -----

// expected-error@+1 {{mesh axis 'data' has size 0; at least 1 is needed}}
"dist.mesh"() {axes = [["data", 0, "space"]], sym_name = "mesh"} : () -> ()

// -----

// expected-error@+1 {{mesh axis 'data' is of kind 'place'; it must be 'space' or 'time'}}
"dist.mesh"() {axes = [["data", 2, "place"]], sym_name = "mesh"} : () -> ()

// -----

// expected-error@+1 {{the mesh of a module is named 'mesh', not 'cluster'}}
"dist.mesh"() {axes = [["data", 2, "space"]], sym_name = "cluster"} : () -> ()

// -----

"dist.mesh"() {axes = [["data", 2, "space"], ["tensor", 4, "space"], ["micro", 4, "time"]], sym_name = "mesh"} : () -> ()
// expected-error@+1 {{a module has one mesh; this is its second}}
"dist.mesh"() {axes = [["data", 2, "space"]], sym_name = "mesh"} : () -> ()

// -----

// expected-error@+1 {{attribute "axes" is expected but not provided}}
"dist.mesh"() {sym_name = "mesh"} : () -> ()

// -----

// expected-error@+1 {{mesh axis 'micro' has trips of ranks: it must be the time axis 'AXIS/share' behind an AXIS}}
"dist.mesh"() {axes = [["data", 2, "space"], ["micro", 4, "time", [3, 1]]], sym_name = "mesh"} : () -> ()

// -----

// expected-error@+1 {{mesh axis 'data/share' has trips [3, 2]: they must be 2 from 1, and 4 together}}
"dist.mesh"() {axes = [["data", 2, "space"], ["data/share", 4, "time", [3, 2]]], sym_name = "mesh"} : () -> ()

// -----

// expected-error@+1 {{mesh axis 'data/share' has more than a name, a size, a kind and the trips of each rank}}
"dist.mesh"() {axes = [["data", 2, "space"], ["data/share", 4, "time", 4]], sym_name = "mesh"} : () -> ()
