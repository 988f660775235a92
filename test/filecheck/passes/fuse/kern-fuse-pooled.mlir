// RUN: shardc-opt --kern-fuse=pooled-results %s | filecheck %s
// RUN: shardc-opt --kern-fuse %s | filecheck %s --check-prefix=APART

// The memory of a kernel's result is kept from call to call, that of ATen's large ones is mapped anew: an op alone
// becomes a kernel from 32 MiB on, unless it reduces.
// CHECK-LABEL: func.func @large
// CHECK: "kern.kernel"
// CHECK-NOT: torch.aten.relu
// APART-LABEL: func.func @large
// APART: torch.aten.relu
func.func @large(%x: !torch.vtensor<[8192,1024],f32>) -> !torch.vtensor<[8192,1024],f32> {
  %y = torch.aten.relu %x : !torch.vtensor<[8192,1024],f32> -> !torch.vtensor<[8192,1024],f32>
  return %y : !torch.vtensor<[8192,1024],f32>
}

// CHECK-LABEL: func.func @small
// CHECK: torch.aten.relu
func.func @small(%x: !torch.vtensor<[8191,1024],f32>) -> !torch.vtensor<[8191,1024],f32> {
  %y = torch.aten.relu %x : !torch.vtensor<[8191,1024],f32> -> !torch.vtensor<[8191,1024],f32>
  return %y : !torch.vtensor<[8191,1024],f32>
}
