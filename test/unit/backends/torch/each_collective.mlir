// Every dist op of level 3 once, on local shapes: mesh data 2 x tensor 4, and a sub-axis of "tensor".
"builtin.module"() ({
  "dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 4, "space"]]} : () -> ()
  func.func @step(%x: !torch.vtensor<[4,8],f32> {dist.name = "x", dist.role = "input"}, %seed: !torch.vtensor<[],si64> {dist.name = "seed", dist.role = "seed"})
      -> (!torch.vtensor<[4,8],f32> {dist.name = "y", dist.role = "output"}, !torch.vtensor<[4,8],f32> {dist.name = "r", dist.role = "output"}) {
    %i0 = torch.constant.int 0
    %i1 = torch.constant.int 1
    %i4 = torch.constant.int 4
    %i8 = torch.constant.int 8
    %f32 = torch.constant.int 6
    %reduced = "dist.all_reduce"(%x) {axes = ["tensor"], reduction = "max"} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>
    %gathered = "dist.all_gather"(%reduced) {axes = [#dist.axis<"tensor", 2 : i64, 2 : i64>], dim = 1 : i64} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,16],f32>
    %scattered = "dist.reduce_scatter"(%gathered) {axes = ["data"], dim = 1 : i64, reduction = "sum"} : (!torch.vtensor<[4,16],f32>) -> !torch.vtensor<[4,8],f32>
    %turned = "dist.all_to_all"(%scattered) {axes = ["tensor"], split_dim = 0 : i64, concat_dim = 1 : i64} : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[1,32],f32>
    %sent = "dist.broadcast"(%turned) {axes = ["data", "tensor"], root = 3 : i64} : (!torch.vtensor<[1,32],f32>) -> !torch.vtensor<[1,32],f32>
    %moved = "dist.permute"(%sent) {source = #dist.sharding<@mesh, [["data"], [#dist.axis<"tensor", 1 : i64, 2 : i64>]], []>, target = #dist.sharding<@mesh, [[#dist.axis<"tensor", 1 : i64, 2 : i64>], ["data"]], []>} : (!torch.vtensor<[1,32],f32>) -> !torch.vtensor<[1,32],f32>
    %handed = "dist.exchange"(%moved) {axes = ["tensor"], sources = [-1, 0, 1, 2]} : (!torch.vtensor<[1,32],f32>) -> !torch.vtensor<[1,32],f32>
    %kept = "dist.slice"(%handed) {axes = ["data", "tensor"], dim = 1 : i64} : (!torch.vtensor<[1,32],f32>) -> !torch.vtensor<[1,4],f32>
    %term = "dist.partial"(%kept) {axes = ["tensor"]} : (!torch.vtensor<[1,4],f32>) -> !torch.vtensor<[1,4],f32>
    %start = "dist.offset"() {axes = ["data"], base = 0 : i64, extent = 4 : i64, scale = 1 : i64} : () -> !torch.int
    %column = "dist.offset"(%start) {axes = ["tensor"], base = 2 : i64, extent = 8 : i64, scale = 3 : i64} : (!torch.int) -> !torch.int
    %size = torch.prim.ListConstruct %i4, %i8 : (!torch.int, !torch.int) -> !torch.list<int>
    %offsets = torch.prim.ListConstruct %start, %column : (!torch.int, !torch.int) -> !torch.list<int>
    %global = torch.prim.ListConstruct %i8, %i8 : (!torch.int, !torch.int) -> !torch.list<int>
    %r = torch.operator "torch.shardc.uniform"(%seed, %i0, %size, %offsets, %global, %f32) : (!torch.vtensor<[],si64>, !torch.int, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.int) -> !torch.vtensor<[4,8],f32>
    %y = torch.aten.add.Tensor %x, %term, %i1 : !torch.vtensor<[4,8],f32>, !torch.vtensor<[1,4],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
    return %y, %r : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32>
  }
}) : () -> ()
