"""Libraries of kernels: the cache on disk, several processes and threads, and error messages."""

import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from bodies import Body, compiled, module_of
from programs import adamw, layer_norm_backward, softmax

from shardc.backends.cpu.compile import build_library
from shardc.backends.cpu.emit.entries import entries
from shardc.backends.cpu.host import architecture, target
from shardc.backends.cpu.object_code import elf, link, object_code
from shardc.cache import disk as cache
from shardc.diagnostics.kernels import (
    KernelCacheWarning,
    KernelNotLowered,
    KernelNotSupported,
    LinkFailed,
    NoLinker,
    UnsupportedTarget,
)
from shardc.runtime.kernels import library
from shardc.runtime.kernels.elf_text import symbol_text
from shardc.runtime.kernels.library import BadLibrary, Library, cpu_features, is_whole, sealed


def negate(count: int = 10, name: str = "negate") -> Body:
    body = Body(name)
    body.results = [body.map([body.argument((count,))], "%r = arith.negf %0 : f32")]
    return body


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of this test's own."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


@pytest.fixture
def counted(monkeypatch):
    """How often something was really compiled."""
    calls = []
    real = link.shared_object
    monkeypatch.setattr(
        "shardc.backends.cpu.compile.shared_object", lambda *given: calls.append(1) or real(*given)
    )
    return calls


def test_a_library_is_compiled_once(folder, counted):
    first, second = build_library(module_of(negate())), build_library(module_of(negate()))
    assert first == second and counted == [1]
    assert [p.name for p in folder.iterdir()] == [first.name]
    assert build_library(module_of(negate(11))) != first and len(counted) == 2


def test_a_file_that_replaced_a_library_is_opened_anew(folder, tmp_path):
    """The dynamic linker would return the first file again, whose kernel has the same name."""
    path, x = tmp_path / "kernels.so", torch.randn(10)
    doubled = Body("negate")
    doubled.results = [doubled.map([doubled.argument((10,))], "%r = arith.addf %0, %0 : f32")]
    for body, expected in ((negate(), -x), (doubled, 2 * x), (negate(), -x)):
        new = tmp_path / "new.so"
        new.write_bytes(build_library(module_of(body)).read_bytes())
        new.replace(path)
        assert torch.equal(Library(path).kernel("negate", [((10,), torch.float32)])(x)[0], expected)


def name_of(digit: int, kind: str = "kernels", suffix: str = "so") -> str:
    """A name of the cache's own."""
    return f"{kind}-{str(digit) * 32}.{suffix}"


def test_what_was_not_used_for_longest_goes_first(folder, monkeypatch):
    content = bytes(1000)
    first, second = cache.keep(name_of(1), content), cache.keep(name_of(2), content)
    os.utime(first, (1, 1))
    os.utime(second, (2, 2))
    assert cache.find(name_of(1)) == first  # and is now the last used
    monkeypatch.setenv("SHARDC_CACHE_BYTES", "2500")
    third = cache.keep(name_of(3), content)
    assert sorted(folder.iterdir()) == [first, third]
    monkeypatch.setenv("SHARDC_CACHE_BYTES", "10")
    assert cache.keep(name_of(4), content).is_file()  # larger than the limit alone: what was just made stays
    assert [p.name for p in folder.iterdir()] == [name_of(4)]


def files_of_a_user(folder: Path) -> dict[Path, bytes | None]:
    """What is in old and large files, some nearly of our names, a link and a folder of just our names."""
    ours = sealed(bytes(5000))
    content: dict[str, bytes] = {
        "thesis.tex": b"mine" * 2000,
        "model.so": bytes(9000),
        ".hidden": bytes(9000),
        "copy of a library.so": ours,
        "kernels-of-mine.so": bytes(9000),
        "graph-2024.json": bytes(9000),
        "choice-1.json": b"",
        name_of(7): b"short",
        name_of(8): bytes(9000),
        name_of(9, "graph", "json"): bytes(9000),
        name_of(1, "frame", "json"): ours,
        name_of(1) + ".bak": ours,
        "old-" + name_of(1): ours,
        name_of(1).upper(): ours,
        name_of(1)[:-4] + ".so": ours,
        f"{name_of(6)}/inside.txt": b"mine",
        "notes/kernels.txt": b"mine",
    }
    for name, held in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(held)
    (folder / name_of(5)).symlink_to(folder / "copy of a library.so")
    (folder / "broken link").symlink_to(folder / "nowhere")
    found = {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
    for path in found:
        os.utime(path, (1, 1), follow_symlinks=False)
    return {**found, folder / "broken link": None}


def test_the_size_limit_leaves_what_is_not_ours(folder, monkeypatch):
    theirs = files_of_a_user(folder)
    ours = [
        cache.keep(name, bytes(1000))
        for name in (
            name_of(1),
            name_of(1, "triton", "tar"),
            name_of(1, "graph", "json"),
            name_of(1, "choice", "json"),
            name_of(1, "trace", "pickle"),
        )
    ]
    monkeypatch.setenv("SHARDC_CACHE_BYTES", "5300")  # what is not ours does not count
    last = cache.keep(name_of(2), bytes(10))
    assert {*folder.rglob("*")} == {*theirs, *ours, last}
    monkeypatch.setenv("SHARDC_CACHE_BYTES", "10")
    last = cache.keep(name_of(3), bytes(10))
    assert {*folder.rglob("*")} == {*theirs, last}
    assert {path: path.read_bytes() if path.is_file() else None for path in theirs} == theirs


def test_a_file_that_another_process_removes_at_that_moment_counts_as_none(folder, monkeypatch):
    monkeypatch.setattr(Path, "is_file", lambda self: True)
    assert cache.find(name_of(1)) is None


def test_several_kernels_in_one_library(folder):
    library = Library(build_library(module_of(negate(5, "five"), softmax(3, 4))))
    x, y = torch.randn(5), torch.randn(3, 4)
    assert torch.equal(library.kernel("five", [((5,), torch.float32)])(x)[0], -x)
    torch.testing.assert_close(library.kernel("softmax", [((3, 4), torch.float32)])(y)[0], y.softmax(-1))


def test_the_module_is_left_as_it_is(folder):
    module = module_of(softmax(3, 4))
    before = str(module)
    build_library(module)
    assert str(module) == before


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1], lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:100] + b"x" + b[101:]],
)
def test_a_damaged_library_is_compiled_again(folder, counted, damage):
    path = build_library(module_of(negate()))
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(damage(whole))
    with pytest.raises(BadLibrary, match="truncated or changed"):
        Library(path)
    assert build_library(module_of(negate())) == path
    assert len(counted) == 2 and is_whole(path.read_bytes())
    x = torch.randn(10)
    assert torch.equal(Library(path).kernel("negate", [((10,), torch.float32)])(x)[0], -x)


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path, monkeypatch, counted):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    with pytest.warns(KernelCacheWarning, match="SHARDC_CACHE_DIR"):
        path = build_library(module_of(negate(21)))
    x = torch.randn(21)
    assert torch.equal(Library(path).kernel("negate", [((21,), torch.float32)])(x)[0], -x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_library(module_of(negate(22)))
        assert build_library(module_of(negate(21))) == path
    assert len(counted) == 2


WORKER = """
import sys
sys.path.append({here!r})
import torch
from bodies import compiled
from programs import softmax
from shardc.backends.cpu import compile
make = compile.compile_functions
compile.compile_functions = lambda functions: print("compiled") or make(functions)
torch.manual_seed(0)
x = torch.randn(50, 60)
assert torch.allclose(compiled(softmax(50, 60))(x)[0], x.softmax(-1), atol=1e-6)
"""


@pytest.mark.slow
def test_processes_compile_the_same_at_once(folder):
    code = WORKER.format(here=str(Path(__file__).parent))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) for _ in range(2)]
    printed = ""
    for process in running:
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        printed += out
    assert printed == "compiled\n", "one compiles, the other waits for it"
    assert (
        len(list(folder.glob("*.so"))) == 1
        and not list(folder.glob("*.part"))
        and not list(folder.glob("*.lock"))
    )


@pytest.mark.parametrize("inner", [1, 2])
def test_threads_call_one_kernel_at_once(inner, in_four_threads):
    """Four threads, each with its own data, on a kernel with a workspace; each may have a team of its own."""
    shape = (200, 300)
    body = layer_norm_backward(*shape)
    body.config = "work_per_thread = 1000 : i64"
    kernel = compiled(body)
    generator = torch.Generator().manual_seed(1)
    data = [
        [torch.randn(s, generator=generator) for s in (shape, shape, shape[:1], shape[:1], shape[1:])]
        for _ in range(4)
    ]
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(inner)
    alone = [kernel(*tensors) for tensors in data]

    def work(number: int) -> None:
        torch.set_num_threads(inner)
        for _ in range(50):
            got = kernel(*data[number])
            assert all(torch.equal(a, b) for a, b in zip(got, alone[number], strict=True))

    in_four_threads(work)
    torch.set_num_threads(torch_threads)


def test_the_threads_are_those_of_torch(threads):
    """Two threads write different rows; one thread gives the same bits where no sum crosses rows."""
    body = softmax(64, 512)
    body.config = "work_per_thread = 1000 : i64"
    x = torch.randn(64, 512)
    kernel = compiled(body)
    got = kernel(x)[0]
    torch.set_num_threads(1)
    assert torch.equal(got, kernel(x)[0])


def test_wrong_names_and_counts():
    library = Library(build_library(module_of(negate())))
    with pytest.raises(BadLibrary, match="no kernel 'other'"):
        library.kernel("other", [((10,), torch.float32)])
    with pytest.raises(BadLibrary, match="has 1 outputs, not 2"):
        library.kernel("negate", [((10,), torch.float32)] * 2)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        library.kernel("negate", [((10,), torch.float32)])(torch.randn(10), torch.randn(10))


def test_a_library_for_another_cpu_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("shardc.backends.cpu.compile.target", lambda: "x86_64 avx avx9000")
    path = build_library(module_of(negate(33)))
    with pytest.raises(BadLibrary, match="avx9000"):
        Library(path)


def test_a_library_is_not_opened_before_its_cpu_is_known(folder, monkeypatch):
    """What opens it may run some of it, and the first AVX-512 instruction ends a process without."""
    path = build_library(module_of(negate(35)))
    monkeypatch.setattr(library.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(library, "cpu_features", lambda: frozenset({"avx"}))
    monkeypatch.setattr(library.ctypes, "CDLL", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(BadLibrary, match=r"was compiled for a CPU with .*avx2"):
        Library(path)
    monkeypatch.setattr(library.platform, "machine", lambda: "aarch64")
    with pytest.raises(BadLibrary, match="was compiled for x86_64"):
        Library(path)


def test_a_library_that_does_not_say_its_cpu_is_not_opened(folder, monkeypatch):
    path = build_library(module_of(negate(36)))
    whole = path.read_bytes()[: -len(library.SEAL) - 32]
    monkeypatch.setattr(library.ctypes, "CDLL", lambda *_, **__: pytest.fail("it was opened"))
    for damage in (
        b"",
        whole[:100],
        whole[: len(whole) // 2],
        whole.replace(b"shardc_target", b"shardc_targex"),
    ):
        path.write_bytes(sealed(damage))
        with pytest.raises(BadLibrary):
            Library(path)


@pytest.mark.parametrize("linker", ["ld", "gcc"])
def test_the_target_is_read_from_what_a_linker_makes(folder, monkeypatch, linker):
    if shutil.which(linker) is None:
        pytest.skip(f"there is no {linker} here")
    monkeypatch.setenv("SHARDC_LINKER", linker)
    path = build_library(module_of(negate(37)))
    assert symbol_text(path.read_bytes(), "shardc_target") == target()
    assert symbol_text(path.read_bytes(), "shardc_nothing") is None


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("riscv64 v", "riscv64 (Linux): shardc generates no code for it"),
        ("x86_64 avx sse4_2", "it lacks avx2 f16c fma"),
        ("x86_64 avx2 f16c fma avx9000", "kernels are compiled only for this machine, which lacks avx9000"),
    ],
)
def test_targets_that_are_refused(folder, monkeypatch, target, problem):
    monkeypatch.setenv("SHARDC_TARGET", target)
    with pytest.raises(UnsupportedTarget) as caught:
        build_library(module_of(negate(34)))
    assert problem in str(caught.value) and target.split()[0] in str(caught.value)


@pytest.mark.skipif(architecture() != "x86_64", reason="a target of x86")
def test_a_target_has_what_all_its_cpus_have(folder, monkeypatch):
    """Calls pass floats in registers of SSE, which a user need not name."""
    monkeypatch.setenv("SHARDC_TARGET", "x86_64 avx avx2 f16c fma")
    assert target() == "x86_64 avx avx2 f16c fma sse sse2"
    body = softmax(20, 40)
    (x,) = tensors = [torch.rand(a.shape) for a in body.arguments]
    (result,) = body.results
    kernel = Library(build_library(module_of(body))).kernel(body.name, [(result.shape, torch.float32)])
    torch.testing.assert_close(kernel(*tensors), [x.softmax(-1)])


@pytest.fixture
def instructions(monkeypatch, tmp_path):
    """The text of the instructions of each object file that is made."""
    texts = []

    def disassembled(objects: list[elf.ObjectFile], linker: list[str] | None) -> bytes:
        (only,) = objects
        (tmp_path / "kernels.o").write_bytes(only.content)
        command = ["objdump", "-d", tmp_path / "kernels.o"]
        texts.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        return link.shared_object(objects, linker)

    monkeypatch.setattr("shardc.backends.cpu.compile.shared_object", disassembled)
    return texts


@pytest.mark.parametrize(
    "make",
    [lambda: softmax(20, 40), lambda: layer_norm_backward(20, 40)],
    ids=["softmax", "layer_norm_backward"],
)
def test_a_target_with_fewer_instruction_sets(folder, monkeypatch, instructions, make):
    """AVX2 on a machine with AVX-512: the code is another, it keeps to the target, its results are right."""
    if "avx512f" not in cpu_features() or shutil.which("objdump") is None:
        pytest.skip("needs a CPU with AVX-512, and objdump")
    wide = build_library(module_of(make()))
    monkeypatch.setenv("SHARDC_TARGET", "x86_64 avx avx2 bmi1 bmi2 f16c fma sse sse2 sse4_1 sse4_2 ssse3")
    narrow = build_library(module_of(make()))
    assert "%zmm" in instructions[0] and "%zmm" not in instructions[1] and "%ymm" in instructions[1]
    assert [bool(re.search("vscalefps .*%[yz]mm", text)) for text in instructions] == [
        make().name == "softmax",
        False,
    ]
    body = make()
    tensors = [torch.rand(a.shape) for a in body.arguments]
    outputs = [(r.shape, torch.float32) for r in body.results]
    one, other = (Library(path).kernel(body.name, outputs)(*tensors) for path in (wide, narrow))
    torch.testing.assert_close(one, other)


def test_a_crash_of_the_compiler_is_an_error(folder, monkeypatch):
    """LLVM aborts where it has no instruction for an intrinsic. The next kernel is compiled as if nothing had
    been.
    """
    bad = """llvm.func @bad(%a: vector<4xi32>) -> vector<4xi32> {
      %r = llvm.call_intrinsic "llvm.aarch64.neon.abs.v4i32"(%a) : (vector<4xi32>) -> vector<4xi32>
      llvm.return %r : vector<4xi32>\n}"""
    with monkeypatch.context() as patch:
        patch.setattr(
            "shardc.backends.cpu.compile.entries",
            lambda *given: entries(*given).removesuffix("}") + bad + "}",
        )
        with pytest.raises(
            KernelNotLowered, match=r"kernels negate .*ended by SIGABRT: LLVM ERROR: Cannot select"
        ):
            build_library(module_of(negate(44)))
    assert not list(folder.glob("*"))
    x = torch.randn(44)
    assert torch.equal(compiled(negate(44))(x)[0], -x)


def test_a_compiler_that_takes_too_long_is_given_up(folder, monkeypatch):
    monkeypatch.setattr(object_code, "LIMIT_S", 0)
    with pytest.raises(KernelNotLowered, match="took more than 0 s"):
        build_library(module_of(negate(45)))


def test_a_compiler_that_went_idle_is_started_again(folder):
    build_library(module_of(negate(46)))
    object_code._worker.stdin.close()  # what makes it end by itself
    object_code._worker.wait()
    build_library(module_of(negate(47)))
    assert len(list(folder.glob("*.so"))) == 2


def test_a_compiler_that_does_not_start(folder, monkeypatch):
    object_code._end()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(KernelNotLowered, match="/no/such/python"):
        build_library(module_of(negate(48)))


def test_no_file_of_ours(tmp_path):
    path = tmp_path / "other.so"
    path.write_bytes(b"\x7fELF" + bytes(1000))
    with pytest.raises(BadLibrary):
        Library(path)
    for content in (b"", b"no library at all"):
        path.write_bytes(sealed(content))
        with pytest.raises(BadLibrary):
            Library(path)


def test_no_tool_is_needed_on_x86(folder, monkeypatch):
    monkeypatch.setenv("PATH", "")
    x = torch.randn(41)
    assert torch.equal(compiled(negate(41))(x)[0], -x)


def test_no_linker_elsewhere(folder, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(
        "shardc.backends.cpu.object_code.link.platform", SimpleNamespace(machine=lambda: "aarch64")
    )
    with pytest.raises(NoLinker, match="binutils"):
        build_library(module_of(negate(43)))
    assert not list(folder.glob("*"))


@pytest.mark.parametrize("linker", ["ld", "cc"])
def test_a_linker_of_the_system(folder, monkeypatch, linker):
    """Of a kernel with constants, calls into libm and two functions."""
    if shutil.which(linker) is None:
        pytest.skip(f"this machine has no {linker}")
    monkeypatch.setenv("SHARDC_LINKER", linker)
    tensors = [torch.rand(5, 6) for _ in range(4)]
    got = compiled(adamw([(5, 6)]))(torch.tensor(2.0), *tensors)
    monkeypatch.delenv("SHARDC_LINKER")
    shutil.rmtree(folder)
    for one, other in zip(got, compiled(adamw([(5, 6)]))(torch.tensor(2.0), *tensors), strict=True):
        assert torch.equal(one, other)


def test_a_linker_that_fails(folder, monkeypatch):
    monkeypatch.setenv("SHARDC_LINKER", "/bin/false --quietly")
    with pytest.raises(LinkFailed, match="exit code 1"):
        build_library(module_of(negate(42)))
    monkeypatch.setenv("SHARDC_LINKER", "/no/such/linker")
    with pytest.raises(LinkFailed, match="No such file"):
        build_library(module_of(negate(42)))


def test_what_has_no_loops_is_named(folder):
    body = Body("table")
    x = body.argument((2,))
    table = body.line("arith.constant dense<[1.0, 2.0]> : {type}", (2,), x.element)
    body.results = [body.map([x, table], "%r = arith.addf %0, %1 : f32")]
    with pytest.raises(KernelNotSupported, match="a constant of several elements"):
        build_library(module_of(body))


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SHARDC_CACHE_DIR", "/somewhere")
    assert cache.cache_folder() == Path("/somewhere")
    monkeypatch.delenv("SHARDC_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "shardc"


def test_a_relocation_that_is_not_known_is_named(tmp_path):
    """Every relocation of a real object file is made one of kind 1 (R_X86_64_64), which LLVM does not use
    here.
    """
    content = []
    patch = pytest.MonkeyPatch()
    patch.setattr(
        "shardc.backends.cpu.object_code.link.link_objects",
        lambda objects: content.extend(o.content for o in objects) or elf.link_objects(objects),
    )
    build_library(module_of(negate(51)))
    patch.undo()
    changed = bytearray(content[0])
    sections = elf._sections(content[0])
    for section in sections:
        if section.kind == elf.RELOCATIONS:
            start = content[0].index(section.content)
            for at in range(start + 8, start + len(section.content), 24):
                changed[at] = 1
    with pytest.raises(LinkFailed, match="relocation of kind 1 "):
        elf.link_objects([elf.ObjectFile(bytes(changed))])


def test_what_llvm_cannot_resolve_is_named(folder, monkeypatch):
    """A function that is nowhere: as a helper of the compiler would be that this machine's libraries lack."""
    monkeypatch.setattr("shardc.backends.cpu.compile.BARRIER", "no_such_function")
    monkeypatch.setattr("shardc.backends.cpu.emit.loops.BARRIER", "no_such_function")
    with pytest.raises(KernelNotLowered, match="layer_norm_backward"):
        build_library(module_of(layer_norm_backward(4, 5)))
    assert not list(folder.glob("*"))
