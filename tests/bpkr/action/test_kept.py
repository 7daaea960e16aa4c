"""Actions that are kept as text: what is read is what was derived, and what is no whole file of ours is refused."""

import hashlib
import json
import re
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Function, Integer

from tests.derivation.architectures import ARCHITECTURES, QUICK, action
from tests.marks import slow
from theorykit import atomic_files, bpkr
from theorykit.bpkr.action import kept

NAMES = [*(name for name in ARCHITECTURES if name in QUICK), *slow(name for name in ARCHITECTURES if name not in QUICK)]
# of what `derive` makes; another derivation has another, and gets a version of its own
SUMS = {(1, 1): "20946e74bb057c89", (2, 1): "a41983910412f7b1", (2, 2): "8a3d5b299879d37d"}


def assert_is_the_same(read: bpkr.Action, derived: bpkr.Action) -> None:
    assert all(getattr(read, field.name) == getattr(derived, field.name) for field in fields(derived))
    assert [type(step.claim) for step in read.derivation.steps] == [
        type(step.claim) for step in derived.derivation.steps
    ]
    assert bpkr.render_markdown(read) == bpkr.render_markdown(derived)
    assert bpkr.render_latex(read) == bpkr.render_latex(derived)
    assert bpkr.generate_source(read) == bpkr.generate_source(derived)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_is_what_was_derived(name, tmp_path):
    derived, path = action(name), tmp_path / "action.json"
    bpkr.save_action(derived, path)
    assert_is_the_same(bpkr.load_action(path), derived)
    assert kept.action_text(bpkr.load_action(path)) == path.read_bytes()


def test_a_false_step_is_found_when_it_is_read(tmp_path):
    derived = action("one layer")
    first, *others = derived.derivation.steps
    false = replace(derived.derivation, steps=(replace(first, after=2 * first.after), *others))
    bpkr.save_action(replace(derived, derivation=false), tmp_path / "action.json")
    failures = bpkr.load_action(tmp_path / "action.json").derivation.verify().failures
    assert [item.step.rule for item in failures] == [first.rule]


def test_there_is_a_version_for_every_derivation():
    """If this fails, another derivation got the number of an old one: raise `kept.DERIVATION`, and enter the sum."""
    names = ("two layers", "skips between", "a skip at two outputs")
    documents = [json.JSONDecoder().raw_decode(kept.action_text(action(name)).decode())[0] for name in names]
    content = [[document["expressions"], document["content"]] for document in documents]
    found = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    assert SUMS[kept.FORMAT, kept.DERIVATION] == found


WHOLE = kept.action_text(action("one layer"))


def text() -> str:
    return WHOLE[: WHOLE.rindex(b"sha256")].decode()


def sealed(text: str) -> bytes:
    return atomic_files.with_sum(text.encode())


def changed(**parts) -> bytes:
    return sealed(json.dumps({**json.loads(text()), **parts}))


def with_row(row, number=-1) -> bytes:
    rows = json.loads(text())["expressions"]
    rows[number] = row
    return changed(expressions=rows)


DAMAGED = {
    "cut in the middle": (WHOLE[: len(WHOLE) // 2], "truncated"),
    "one letter changed": (WHOLE.replace(b"Phi", b"Psi", 1), "the checksum of its content differs"),
    "a pickle": (b"\x80\x04\x95\x0c\x00\x00\x00", "truncated"),
    "another kind": (changed(kind="a sweep"), "another result"),
    "of a later format": (changed(format=kept.FORMAT + 1), f"version {kept.FORMAT + 1} of the format"),
    "of an older derivation": (changed(derivation=0), "version 0 of the derivation"),
    "a call among the expressions": (with_row(["__import__", "os"]), "__import__ is not a supported kind"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_no_whole_action_is_refused_by_name_and_cause(name, tmp_path):
    content, cause = DAMAGED[name]
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(cause)) as refused:
        bpkr.load_action(path)
    assert str(path) in str(refused.value)


@given(place=st.integers(0, len(WHOLE) - 1), byte=st.integers(0, 255))
@settings(max_examples=50)
def test_any_byte_that_is_changed_is_found(place, byte):
    content = WHOLE[:place] + bytes([byte]) + WHOLE[place + 1 :]
    if content == WHOLE:
        return
    with pytest.raises(ValueError):
        kept.read_action(content)


def test_a_file_of_another_program_is_not_replaced(tmp_path):
    path = tmp_path / "action.json"
    path.write_text("{}")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="without theorykit's mark"):
            bpkr.save_action(action("one layer"), path, overwrite=overwrite)
    path.unlink()
    bpkr.save_action(action("one layer"), path)
    with pytest.raises(FileExistsError):
        bpkr.save_action(action("two layers"), path)
    bpkr.save_action(action("two layers"), path, overwrite=True)
    assert bpkr.load_action(path).energy == action("two layers").energy


class Unknown(Function):
    """A function that no version of theorykit knows."""


def test_an_expression_that_has_no_text_is_named(tmp_path):
    derived = action("one layer")
    with pytest.raises(ValueError, match=r"test_kept\.Unknown"):
        bpkr.save_action(replace(derived, energy=derived.energy + Unknown(Integer(1))), tmp_path / "action.json")
    assert not (tmp_path / "action.json").exists()
