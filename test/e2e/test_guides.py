"""The guides' scripts and commands work as they stand."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import guides
import pytest
import readme
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from transformers import LlamaConfig, LlamaForCausalLM
from twins import FOLDER

BIN = Path(sys.executable).parent
pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_data(tmp_path: Path) -> None:
    files, [command] = guides.scripts("data")
    for name, script in files.items():
        (tmp_path / name).write_text(script)
    steps, loss = readme.run(command, tmp_path, BIN).split()
    assert steps == "8" and 0 < float(loss) < 1


def test_checkpoints(tmp_path: Path) -> None:
    files, commands = guides.scripts("checkpoints")
    for name, script in files.items():
        (tmp_path / name).write_text(script)
    whole, resumed = (
        [dict(re.findall(r"^(\d) ([\d.e-]+)$", readme.run(command, tmp_path, BIN), re.MULTILINE))]
        for command in commands
    )
    assert [sorted(found) for found in (*whole, *resumed)] == [list("0123456789"), list("56789")]
    for number, loss in resumed[0].items():
        assert float(loss) == pytest.approx(float(whole[0][number]), rel=1e-5), number
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000005"]


def test_security(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("SHARDC_TUNING_DB", raising=False)
    files, commands = guides.scripts("security")
    for name, script in files.items():
        (tmp_path / name).write_text(script)
    said = [readme.run(command, tmp_path, BIN) for command in commands]
    assert len(said) == 7 and "step 2" in said[2]
    folder = (tmp_path / "out" / "README").read_text()
    assert "This folder is code" in folder and "checkpoint and a tuning database are\ndata" in folder
    kept = [(tmp_path / name).iterdir() for name in ("cache", "new-cache")]
    assert all({path.suffix for path in found} <= {".so", ".json"} for found in kept)
    assert (tmp_path / "other.db").is_file() and (tmp_path / "trials.jsonl").read_text()


def test_evaluation(tmp_path: Path) -> None:
    files, [command] = guides.scripts("evaluation")
    for name, script in files.items():
        (tmp_path / name).write_text(script)
    trained, evaluated, accuracy, same = readme.run(command, tmp_path, BIN).splitlines()[-1].split()
    assert (
        0 < float(evaluated) < 1.5 and 0 < float(trained) < 1.5 and float(accuracy) > 0.5 and same == "True"
    )


def test_trainers(tmp_path: Path) -> None:
    files, [command] = guides.scripts("trainers")
    for name, script in files.items():
        (tmp_path / name).write_text(script)
    assert len(re.findall(r"'loss': ", readme.run(command, tmp_path, BIN))) >= 4
    assert (tmp_path / "final" / "model.safetensors").is_file()


def test_logs(tmp_path: Path) -> None:
    files, [compiled, doctor] = guides.scripts("logs")
    for name, script in {**files, **readme.files()}.items():
        (tmp_path / name).write_text(script)
    said = readme.run(f"{compiled} 2>&1", tmp_path, BIN)
    assert all(f"shardc.{topic}:" in said for topic in ("plan", "reshard", "timing"))
    assert "shardc.fusion:" not in said and (tmp_path / "out" / "program.py").is_file()
    assert "torch" in readme.run(doctor, tmp_path, BIN)
    assert readme.run("python quiet.py", tmp_path, BIN) == ""


def losses(text: str) -> dict[str, float]:
    """What the scripts of the porting guides print: a step's number and its loss."""
    found = re.findall(r"^(\d+) (\d+\.\d+)$", text, re.MULTILINE)
    return {number: float(loss) for number, loss in found}


def printed(name: str, folder: Path) -> list[str]:
    """What each command of a guide printed; its scripts stand beside the README's."""
    files, commands = guides.scripts(name)
    for file, script in {**readme.files(), **files}.items():
        (folder / file).write_text(script)
    return [readme.run(command, folder, BIN) for command in commands]


def test_from_fsdp2(tmp_path: Path) -> None:
    before, after, resumed = map(losses, printed("from_fsdp2", tmp_path))
    assert list(before) == list("012345") and list(resumed) == list("345")
    assert after == pytest.approx(before, rel=1e-5)
    assert after | resumed == pytest.approx(before, rel=1e-5)


def eager(
    model: nn.Module, optimizer: Optimizer, loss_of: Callable[[Tensor], Tensor], batches: Iterable[Tensor]
) -> dict[str, float]:
    """Losses of plain steps on one device, with gradients clipped to 1."""
    found: dict[str, float] = {}
    for number, x in enumerate(batches):
        loss = loss_of(x)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found[str(number)] = loss.item()
    return found


def test_from_accelerate(tmp_path: Path) -> None:
    before, after, again = map(losses, printed("from_accelerate", tmp_path))
    assert len(before) == len(again) == 6 and again["0"] < before["0"]
    assert after == pytest.approx(before, rel=1e-5)


def test_from_deepspeed(tmp_path: Path) -> None:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    found = [losses(said) for said in printed("from_deepspeed", tmp_path)]
    optimizer = AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)

    def batches() -> Iterator[Tensor]:
        rows = torch.randn(192, 64, generator=torch.Generator().manual_seed(1))
        for number, x in enumerate(rows.split(32)):
            optimizer.param_groups[0]["lr"] = 1e-3 * min(1.0, (number + 1) / 4)
            yield x

    plain = eager(model, optimizer, lambda x: nn.functional.mse_loss(model(x), x), batches())
    assert len(plain) == 6 and found == [pytest.approx(plain, rel=1e-5)] * 2


def test_from_megatron(tmp_path: Path) -> None:
    _, trained, _ = printed("from_megatron", tmp_path)
    model = LlamaForCausalLM.from_pretrained(tmp_path / "weights").train()
    optimizer = AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    tokens = torch.randint(0, 128, (8, 16), generator=torch.Generator().manual_seed(0))
    plain = eager(model, optimizer, lambda x: model(input_ids=x, labels=x).loss, [tokens] * 4)
    assert losses(trained) == pytest.approx(plain, rel=1e-5)
    wanted = model.state_dict()
    for name, value in LlamaForCausalLM.from_pretrained(tmp_path / "trained").state_dict().items():
        assert (wanted[name] - value).abs().max() < 1e-4, name


def assert_answered(name: str, folder: Path, count: int) -> None:
    """Each command of a guide says what stands below it, and fails where that is an error."""
    files, commands = guides.scripts(name)
    for file, script in {**readme.files(), **files}.items():
        (folder / file).write_text(script)
    answers = readme.answers(guides.text_of(name))
    assert len(answers) == count
    for command in commands:
        done = readme.call(command, folder, BIN)
        said, answer = done.stdout + done.stderr, answers.get(command, [])
        fails = any(re.match(r"(… )?[A-Z]\w+: ", line) for line in answer)
        assert (done.returncode != 0) == fails, f"{command}\n{said}"
        assert re.search(readme.like(answer), said), f"{command}\n{said}"


def test_symptoms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("SHARDC_STEP_CACHE", raising=False)
    assert_answered("symptoms", tmp_path, 12)


def test_performance(tmp_path: Path) -> None:
    assert_answered("performance", tmp_path, 1)


def test_first_plan(tmp_path: Path) -> None:
    """The plans of the page's config are those that it shows."""
    text = guides.text_of("first_plan")
    [config] = [block.text for block in guides.blocks(text) if block.language == "json"]
    (tmp_path / "config.json").write_text(config)
    answers = readme.answers(text)
    _, commands = guides.scripts("first_plan")
    assert len(answers) == 2 and len(commands) == 3
    for command in commands:
        said = readme.call(command.removeprefix(".venv/bin/"), tmp_path, BIN).stdout
        assert re.search(readme.like(answers.get(command, ["ok"])), said), f"{command}\n{said}"


def numbers(text: str) -> dict[str, float]:
    """What scripts of ``examples/training`` print, by its name."""
    found = re.findall(r"((?:step|round) \d+) (?:(critic) \S+ )?([a-z_ -]+) (\d+\.\d+)", text)
    return {f"{head} {name}": float(value) for head, _, name, value in found}


def folder_of_weights(folder: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def test_port_a_script(tmp_path: Path) -> None:
    """The last numbers of each script are those of its twin."""
    for path in FOLDER.glob("*.py"):
        shutil.copy(path, tmp_path)
    folder_of_weights(tmp_path / "start")
    _, commands = guides.scripts("port_a_script")
    said = [numbers(readme.run(command, tmp_path, BIN)) for command in commands]
    assert len(said) == 9 and all(said)
    language, (gan, trainer, tuned) = said[:3], [said[i : i + 2] for i in (3, 5, 7)]
    for plain, *ours in (language, gan, trainer, tuned):
        assert {name: value for part in ours for name, value in part.items()} == pytest.approx(
            plain, rel=2e-4
        )
