"""``test/unit`` has the folders of the sources, so that the tests of a file are found without a search."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNIT = Path(__file__).parent


def source_folder(folder: Path) -> Path:
    """The folder of the product that a folder of ``test/unit`` tests."""
    parts = folder.relative_to(UNIT).parts
    return ROOT.joinpath(
        *(() if parts[0] in ("dialects", "passes", "backends") else ("python", "shardc")), *parts
    )


def test_each_folder_of_tests_is_one_of_the_sources() -> None:
    folders = {path.parent for path in UNIT.rglob("test_*.py")} - {UNIT}
    assert len(folders) > 20
    assert not [str(folder) for folder in folders if not source_folder(folder).is_dir()]
