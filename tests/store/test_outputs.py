"""What is to be written is looked at before: endings, clashes with what is read, places that cannot be written to."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from theorykit import store
from theorykit.store import FOLDER, Output

from .writers import WRITERS


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"a folder"
        for path in folder.rglob("*")
    }


@pytest.fixture
def data(tmp_path):
    """A user's folder with data in it."""
    (tmp_path / "data.nc").write_bytes(b"precious")
    (tmp_path / "below").mkdir()
    return tmp_path / "data.nc"


# names for a file "data.nc" in a folder `here` that has a folder "below"
SPELLINGS = {
    "itself": lambda here: here / "data.nc",
    "a detour": lambda here: here / "below" / ".." / "data.nc",
    "a dot": lambda here: Path(f"{here}/./data.nc"),
    "a link": lambda here: linked(here, os.symlink),
    "a link to a link": lambda here: linked(here, os.symlink, linked(here, os.symlink)),
    "a hard link": lambda here: linked(here, os.link),
    "a linked folder": lambda here: linked_folder(here) / "data.nc",
    "relative": lambda here: Path(os.path.relpath(here / "data.nc")),
}


def linked(here: Path, how, target: Path | None = None) -> Path:
    link = here / f"link{len(list(here.iterdir()))}.nc"
    how(target or here / "data.nc", link)
    return link


def linked_folder(here: Path) -> Path:
    link = here / "linked"
    link.symlink_to(here)
    return link


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("overwrite", [True, False])
def test_an_input_is_no_output_however_it_is_called(spelling, there, overwrite, data):
    path = SPELLINGS[spelling](data.parent)
    if not there:
        data.unlink()
        if spelling == "a hard link":
            return  # another file then
    before = snapshot(data.parent)
    with pytest.raises(ValueError, match=r"the output would be .*, which is `file` of \[data\]") as refusal:
        store.check_outputs([Output("the output", path, ".nc")], {"`file` of [data]": data}, overwrite=overwrite)
    assert "--overwrite" not in str(refusal.value)
    assert snapshot(data.parent) == before


@pytest.mark.parametrize("spelling", ["itself", "a detour", "a dot", "a linked folder"])
def test_no_two_outputs_are_one(spelling, data):
    data.unlink()
    other = SPELLINGS[spelling](data.parent)
    for one in (data, data.with_name("DATA.nc")):
        with pytest.raises(ValueError, match="the result and the table would both be"):
            store.check_outputs(
                [Output("the table", one, ".nc"), Output("the result", other, ".nc")], {}, overwrite=True
            )


def test_no_input_lies_in_a_folder_that_a_run_is_kept_in(data):
    inside = data.parent / "below" / "points" / "mine.npz"
    with pytest.raises(ValueError, match="which contains the data"):
        store.check_outputs([Output("the folder", data.parent / "below", FOLDER)], {"the data": inside}, overwrite=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(name=st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=300))
def test_any_name_is_tried_or_refused_and_leaves_no_trace(name, tmp_path):
    here = tmp_path / "here"
    here.mkdir(exist_ok=True)
    for output in (Output("the output", here / f"{name}.nc", ".nc"), Output("a folder", here / "new" / name, FOLDER)):
        try:
            store.check_outputs([output], {}, overwrite=False)
        except (OSError, ValueError) as refusal:
            told = str(refusal.filename) if isinstance(refusal, OSError) and refusal.filename else str(refusal)
            assert "\0" not in told and str(refusal)
        else:
            path = output.path if output.ending else output.path / "result.nc"
            store.write_text("whole", path)
            assert path.read_text() == "whole"
            path.unlink()
            for folder in (path.parent, path.parent.parent):
                if folder != here and here in folder.parents:
                    folder.rmdir()
        assert not list(here.iterdir())


@pytest.mark.parametrize("ending", [".nc", ".png", ".md"])
@pytest.mark.parametrize("name", ["result", "result.txt", "result.nc.gz", ".nc", "result.", "result.NC"])
def test_another_ending_is_refused(name, ending, tmp_path):
    with pytest.raises(ValueError, match=rf"the output must end in \{ending}, got"):
        store.check_outputs([Output("the output", tmp_path / name, ending)], {}, overwrite=True)


@pytest.mark.parametrize("name", ["result.nc", "figure.png", "mine.toml"])
def test_a_folder_is_not_called_as_a_file_is(name, tmp_path):
    with pytest.raises(ValueError, match="is a folder, but"):
        store.check_outputs([Output("--output", tmp_path / name, FOLDER)], {}, overwrite=True)


def special(path: Path, kind: str) -> None:
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "another's":
        path.write_text("mine")
    elif kind == "link to a folder":
        path.with_name("elsewhere").mkdir()
        path.symlink_to(path.with_name("elsewhere"))
    elif kind == "link to a device":
        path.symlink_to("/dev/null")
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "below a file":
        path.parent.rmdir()
        path.parent.write_text("mine")


KINDS = ["folder", "pipe", "another's", "link to a folder", "link to a device", "link to itself", "below a file"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("overwrite", [True, False])
def test_what_is_no_result_is_refused_before_and_by_the_writers(kind, overwrite, tmp_path):
    path = tmp_path / "here" / "result.nc"
    path.parent.mkdir()
    special(path, kind)
    before = {str(file): file.lstat().st_mode for file in tmp_path.rglob("*")}
    with pytest.raises(OSError):
        store.check_outputs([Output("the output", path, ".nc")], {}, overwrite=overwrite)
    with pytest.raises(OSError):
        WRITERS["dataset"].write(path, 1.0)
    assert {str(file): file.lstat().st_mode for file in tmp_path.rglob("*")} == before
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_result_is_replaced_only_on_request(tmp_path):
    path = tmp_path / "result.nc"
    WRITERS["dataset"].write(path, 1.0)
    store.check_outputs([Output("the output", path, ".nc")], {}, overwrite=True)
    with pytest.raises(FileExistsError, match=r"result\.nc exists; .* overwrite=True \(--overwrite\)"):
        store.check_outputs([Output("the output", path, ".nc")], {}, overwrite=False)


def test_what_a_run_kept_is_removed_but_nothing_else(tmp_path):
    kept, mine = tmp_path / "partial" / "diagram" / "0.nc", tmp_path / "partial" / "notes.txt"
    WRITERS["dataset"].write(kept, 1.0)
    WRITERS["arrays"].write(kept.with_suffix(".npz"), 1.0)
    mine.write_text("mine")
    (tmp_path / "partial" / "linked").symlink_to(tmp_path)
    store.remove_kept(tmp_path / "partial")
    assert {path.name for path in (tmp_path / "partial").iterdir()} == {"notes.txt", "linked"}
    mine.unlink()
    (tmp_path / "partial" / "linked").unlink()
    store.remove_kept(tmp_path / "partial")
    store.remove_kept(tmp_path / "partial")
    assert not (tmp_path / "partial").exists() and tmp_path.exists()
