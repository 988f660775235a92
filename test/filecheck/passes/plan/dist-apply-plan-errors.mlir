// RUN: not shardc-opt --dist-apply-plan=plan=tensr %s 2>&1 | filecheck %s --check-prefix=PRESET
// RUN: not shardc-opt --dist-apply-plan=plan=auto %s 2>&1 | filecheck %s --check-prefix=AUTO
// RUN: not shardc-opt --dist-apply-plan=plan=tensor %s 2>&1 | filecheck %s --check-prefix=AXIS
// RUN: not shardc-opt --dist-apply-plan=plan=data:rows %s 2>&1 | filecheck %s --check-prefix=NAMED
// RUN: not shardc-opt '--dist-apply-plan=plan=data:shards' %s 2>&1 | filecheck %s --check-prefix=WAYS

// Plans that do not fit. A preset takes its axis by name ("zero1:shards") or one that is usually called so.

"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["shards", 9, "space"]]} : () -> ()

// PRESET: UnknownPreset: 'tensr' in plan 'tensr' is not a preset
// PRESET-NEXT: try: use data, zero1, zero2, zero3, tensor, sequence

// AUTO: BadPassOption: the pass 'dist-apply-plan' can't take plan='auto': it must be a plan; the pass dist-search

// AXIS: UnknownAxis: preset 'tensor' needs mesh axis 'tensor or tp or model'; the mesh has data (2), shards (9)
// AXIS-NEXT: try: name the axis: tensor:data

// NAMED: UnknownAxis: preset 'data' needs mesh axis 'rows'; the mesh has data (2), shards (9)

// WAYS: TooManyWays: dim 0 of 'x' has 8 elements and cannot be sharded 9 ways (shards)
// WAYS-NEXT: try: shard it over axes of at most 8 devices in all, or leave it whole;
func.func @step(%x: !torch.vtensor<[8,16],f32> {dist.role = "input", dist.name = "x"}) -> !torch.vtensor<[8,16],f32> {
  return %x : !torch.vtensor<[8,16],f32>
}
