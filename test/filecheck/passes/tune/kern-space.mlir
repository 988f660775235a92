// RUN: shardc-opt --pipeline 'kern-fuse{matmuls=generated lone=true},kern-space{threads=2}' --split-input-file %s | filecheck %s
// RUN: shardc-opt --pipeline 'kern-fuse{matmuls=generated lone=true},kern-space{target=sm_90}' --split-input-file %s | filecheck %s --check-prefix=GPU

// A matmul: register tiles, blocks, operands that may be read where they lie (both here), and what threads share.
// CHECK-LABEL: func.func @matmul
// CHECK: kern.best = "matmul(tile_m={{[0-9]+}}, tile_n={{[0-9]+}}, block_m={{[0-9]+}}, {{.*}}, left={{[12]}}, right={{[12]}}, share={{[12]}})"
// CHECK-SAME: kern.space = {matmul = {block_k = array<i64: 256, 512, 1024, 4096>, block_m = array<i64: 48, 96, 192, 768>,
// CHECK-SAME: left = array<i64: 1, 2>, right = array<i64: 1, 2>, share = array<i64: 1, 2>, tile_m = array<i64:
// GPU-LABEL: func.func @matmul
// GPU: kern.best = "matmul_tiles(block_m={{[0-9]+}}, block_n={{[0-9]+}}, block_k={{[0-9]+}}, warps={{[0-9]}}, stages={{[0-9]}}, group={{[0-9]+}})"
// GPU-SAME: matmul_split = {{.*}}, split = array<i64: 2, 4, 8, 16>, {{.*}}matmul_tiles = {block_k = array<i64: 16, 32, 64, 128>
func.func @matmul(%x: !torch.vtensor<[512,512],f32>, %w: !torch.vtensor<[512,512],f32>) -> !torch.vtensor<[512,512],f32> {
  %0 = torch.aten.mm %x, %w : !torch.vtensor<[512,512],f32>, !torch.vtensor<[512,512],f32> -> !torch.vtensor<[512,512],f32>
  return %0 : !torch.vtensor<[512,512],f32>
}

// -----

// Rows of several passes: what is kept for the next, whether the next row is fetched, and whether results go past the
// caches. What changes nothing where nothing is fetched or streamed is not a point.
// CHECK-LABEL: func.func @softmax
// CHECK: kern.best = "rows({{.*}}recompute_cost=12{{.*}})"
// CHECK-SAME: kern.space = {rows = {far_bytes = array<i64: 1, 4194304>, piece = array<i64: 64, 128, 256, 512, 1024>, recompute_cost = array<i64: {{.*}}>
// GPU-LABEL: func.func @softmax
// GPU: kern.best = "rows(rows=1, columns=1024, warps={{[0-9]+}})"
// GPU-SAME: kern.space = {rows = {columns = array<i64: 64, 128, 256, 512, 1024>, rows = array<i64: 1, 2, 4, {{.*}}>, warps = array<i64: 1, 2, 4, 8, 16, 32>}}
func.func @softmax(%x: !torch.vtensor<[512,1024],f32>) -> !torch.vtensor<[512,1024],f32> {
  %d = torch.constant.int -1
  %f = torch.constant.bool false
  %0 = torch.aten._softmax %x, %d, %f : !torch.vtensor<[512,1024],f32>, !torch.int, !torch.bool -> !torch.vtensor<[512,1024],f32>
  return %0 : !torch.vtensor<[512,1024],f32>
}

// -----

// Sums over rows: rows that are added up by themselves first, and on a GPU programs that share them.
// CHECK-LABEL: func.func @columns
// CHECK: kern.space = {columns = {rows = array<i64: 16, 32, 64, 128, 256, 512>, work_per_thread = array<i64: {{.*}}>
// GPU-LABEL: func.func @columns
// GPU: kern.best = "columns(rows=
// GPU-SAME: kern.space = {columns = {columns = {{.*}}, programs = array<i64: 1, 16, {{.*}}>, rows = {{.*}}, warps =
func.func @columns(%x: !torch.vtensor<[2048,256],f32>) -> !torch.vtensor<[256],f32> {
  %none = torch.constant.none
  %f = torch.constant.bool false
  %zero = torch.constant.int 0
  %l = torch.prim.ListConstruct %zero : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.sum.dim_IntList %x, %l, %f, %none : !torch.vtensor<[2048,256],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[256],f32>
  return %0 : !torch.vtensor<[256],f32>
}
