"""Outputs: up to date, replaced, protected, resumed; and the record beside them."""

import pickle

import pytest
from conftest import refused

from attention_dynamics.cli import InputError, RunError
from attention_dynamics.runs.outputs import output, read_output_record, save_state
from attention_dynamics.storage.files import sha256

SETTINGS = {"steps": (1, 2), "name": "a"}


def make(path, settings=SETTINGS, overwrite=False, **options) -> bool:
    """Write an output unless it is current; whether it was written."""
    with output(path, settings, overwrite, **options) as out:
        if out.is_current:
            return False
        out.write([settings["name"]] * 3, {"accuracy": 0.5})
    return True


def test_output_is_made_once(tmp_path):
    path = tmp_path / "outputs" / "x.pkl"
    assert make(path)
    assert pickle.loads(path.read_bytes()) == ["a"] * 3
    record = read_output_record(path)
    assert record["settings"] == {"steps": [1, 2], "name": "a"}
    assert record["sha256"] == sha256(path)
    assert record["results"]["accuracy"] == 0.5 and record["results"]["seconds"] > 0
    assert not make(path)
    assert make(path, overwrite=True)


@pytest.mark.parametrize(
    ("change", "replace_stale"),
    [
        ("settings", True), ("record", True), ("content", True),
        # What a kill between the record and the output leaves, with and without an earlier output.
        ("content", False), ("nothing", False),
    ],
)  # fmt: skip
def test_output_that_is_stale_is_replaced(tmp_path, capsys, change, replace_stale):
    path, settings = tmp_path / "x.pkl", SETTINGS
    make(path)
    if change == "settings":
        settings = {**SETTINGS, "name": "b"}
    elif change == "content":
        path.write_bytes(path.read_bytes()[:-1])
    elif change == "record":
        path.with_suffix(".json").write_text('{"se')
    else:
        path.unlink()
    assert make(path, settings, replace_stale=replace_stale)
    assert ("recomputing" in capsys.readouterr().out) == (change != "nothing")
    assert not make(path, settings)


def test_output_that_is_protected_is_not_replaced(tmp_path):
    path, other = tmp_path / "x.pkl", {**SETTINGS, "name": "b"}
    make(path)
    with pytest.raises(InputError, match=r"settings \(name was 'a', is 'b'\); --overwrite"):
        make(path, other, replace_stale=False)
    assert pickle.loads(path.read_bytes()) == ["a"] * 3
    assert make(path, other, overwrite=True, replace_stale=False)
    path.with_suffix(".json").unlink()
    assert "is missing or malformed; --overwrite" in refused(make, path, other, replace_stale=False)


def test_output_keeps_unfinished_work_until_it_is_written(tmp_path):
    path, part = tmp_path / "x.pkl", {"part": 1}

    def interrupt() -> None:
        with pytest.raises(KeyboardInterrupt), output(path, SETTINGS, False) as out:
            out.partial.put(part, 5)
            save_state(out.state_path, SETTINGS, 6)
            raise KeyboardInterrupt

    interrupt()
    with output(path, SETTINGS, False) as out:
        assert out.partial.get(part) == 5 and out.partial.get({"part": 2}) is None
        assert out.state_path.exists()
    with output(path, SETTINGS, True) as out:
        assert out.partial.get(part) is None and not out.state_path.exists()
    interrupt()
    make(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.json", "x.pkl"]


def test_output_is_locked(tmp_path):
    path = tmp_path / "x.pkl"
    with output(path, SETTINGS, False), pytest.raises(RunError, match="is being written"):
        make(path)
