import sys

import pytest

from privet.audits.static.target import locate
from privet.errors import InputError

CODE = "raise SystemExit('was run')\ndef train():\n    pass\nclass Trainer:\n    pass\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pack" / "inner").mkdir(parents=True)
    (tmp_path / "src" / "other").mkdir(parents=True)
    for file in ("plain.py", "pack/__init__.py", "pack/inner/deep.py", "src/other/mod.py"):
        (tmp_path / file).write_text(CODE)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "file", "name"),
    [
        ("plain.py", "plain.py", None),
        ("plain.py:train", "plain.py", "train"),
        ("plain:Trainer", "plain.py", "Trainer"),
        ("pack", "pack/__init__.py", None),
        ("pack.inner.deep:train", "pack/inner/deep.py", "train"),
        ("other.mod:train", "src/other/mod.py", "train"),
    ],
)
def test_code_is_found_and_not_run(folder, target, file, name):
    found = locate(target, folder)
    assert found.path == folder / file
    assert found.name == name
    assert found.text == CODE


def test_an_absolute_path_is_taken_as_it_is(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert locate(str(folder / "plain.py"), elsewhere).path == folder / "plain.py"


def test_an_installed_module_is_found_without_importing_its_parents(tmp_path, monkeypatch):
    package = tmp_path / "site" / "loud_package_for_check"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(CODE)
    (package / "inner.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = locate("loud_package_for_check.inner:train", tmp_path)
    assert found.path == package / "inner.py"
    assert "loud_package_for_check" not in sys.modules


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("absent.py", "no such code"),
        ("no.such.module:train", "no such code"),
        ("sys", "no such code"),
        ("not a name", "no such code"),
        ("plain.py:test", "expected train, Trainer"),
        ("src", "privet verify FOLDER"),
        ("trust.json", "privet verify FOLDER"),
        ("broken.py", "line 2"),
        ("binary.py", "UTF-8"),
    ],
)
def test_bad_input_is_one_line_that_helps(folder, target, says):
    (folder / "trust.json").write_text('{"method": "dpsgd"}')
    (folder / "broken.py").write_text("x = 1\ndef (:\n")
    (folder / "binary.py").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match=says) as error:
        locate(target, folder)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2
