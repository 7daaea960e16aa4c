"""Every writer: whole or not there, no file of the user's replaced, links and permissions kept, leftovers removed."""

import ast
import errno
import os
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from theorykit import atomic_files

from .writers import WRITERS

ROOT = Path(__file__).parent.parent.parent
each_writer = pytest.mark.parametrize("name", WRITERS)
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)


@pytest.fixture(autouse=True)
def without_latex(monkeypatch):
    monkeypatch.setenv("PATH", "")


def written(name: str, folder: Path, number: float = 1.0) -> Path:
    path = folder / f"result{WRITERS[name].ending}"
    WRITERS[name].write(path, number)
    return path


@each_writer
def test_a_file_carries_the_mark_and_is_replaced_by_the_next(name, tmp_path):
    path = written(name, tmp_path)
    first = path.read_bytes()
    assert atomic_files.is_marked(path)
    written(name, tmp_path, 2.0)
    assert path.read_bytes() != first
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_marks_do_not_keep_a_file_from_being_read(tmp_path):
    xr.open_dataset(written("dataset", tmp_path), engine="h5netcdf").load()
    with np.load(written("arrays", tmp_path)) as archive:
        assert np.array_equal(archive["a"], np.ones(400))
    with Image.open(written("figure .png", tmp_path)) as image:
        image.load()
    compile(written("source .py", tmp_path).read_text(), "source", "exec")
    assert written("figure .pdf", tmp_path).read_bytes().startswith(b"%PDF")


ANYTHING = st.binary(max_size=400) | st.binary(max_size=40).map(lambda end: b"\x89PNG" + end)


@each_writer
@in_one_folder
@given(content=ANYTHING, cut=st.integers(2, 40))
def test_what_has_no_mark_is_never_replaced(name, tmp_path, content, cut):
    path = tmp_path / f"result{WRITERS[name].ending}"
    sample = tmp_path / "sample" / path.name
    own = (sample if sample.exists() else written(name, sample.parent)).read_bytes()
    foreign = [content, own + b"mine" + content, own[:-cut]]
    if path.suffix == ".png":  # whose mark is at its beginning
        foreign = [content, own[cut:], b"mine" + own]
    for there in foreign:
        path.write_bytes(there)
        with pytest.raises(FileExistsError, match=r"result\.\w+ exists without theorykit's mark"):
            WRITERS[name].write(path, 2.0)
        assert path.read_bytes() == there


@each_writer
def test_permissions_of_a_replaced_file_are_kept_and_a_new_one_follows_the_umask(name, tmp_path):
    before = os.umask(0o027)
    try:
        path = written(name, tmp_path)
        assert path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)
    for mode in (0o600, 0o664):
        path.chmod(mode)
        written(name, tmp_path, 2.0)
        assert path.stat().st_mode & 0o777 == mode


@each_writer
@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_written(name, there, tmp_path):
    target = tmp_path / "elsewhere" / f"result{WRITERS[name].ending}"
    target.parent.mkdir()
    if there:
        WRITERS[name].write(target, 1.0)
    link = tmp_path / target.name
    link.symlink_to(target)
    written(name, tmp_path, 2.0)
    assert link.is_symlink() and atomic_files.is_marked(target)


@each_writer
def test_what_a_killed_write_left_is_removed_by_the_next_and_nothing_else(name, tmp_path):
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    target = f"result{WRITERS[name].ending}"
    ours, other = atomic_files.temporary_name(tmp_path / target).name, "0" * 8
    host = ours.removeprefix(f".{target}.").partition("-")[0]
    ended = f"{host}-{finished.pid}-{'a' * 8}"
    leftovers = [f".{target}.{ended}", ours, f".{target}.{other}-1-{'b' * 8}"]
    kept = [f".{target}", f"{target}.1", f".another.{ended}", f".{target}.{finished.pid}"]
    kept += [f".{target}.{ended}{end}" for end in ("x", ".bak", "-1")]
    running, padded = f"{host}-{os.getppid()}", f"{host}-0{finished.pid}"
    kept += [f".{target}.{end}-{'c' * 8}" for end in (f"{other}-1", padded, running)]
    for other in (*leftovers, *kept):
        (tmp_path / other).write_text("half")
    os.utime(tmp_path / leftovers[2], (0, 0))  # another host left it long ago, and the one in `kept` just now
    (tmp_path / f".{target}.{host}-{2**40}-{'a' * 8}").mkdir()
    written(name, tmp_path)
    there = {path.name for path in tmp_path.iterdir()}
    assert there >= {*kept, target} and not there & set(leftovers)


def test_threads_and_hosts_write_one_file_without_meeting(tmp_path, monkeypatch):
    # names end at 255 bytes, temporary ones too
    path = tmp_path / ("é" * 125 + ".txt")

    def write(number):
        if number % 2:  # a process of another host may have the same number
            monkeypatch.setattr(atomic_files, "_host", lambda: f"{number:08x}")
        atomic_files.write(atomic_files.with_sum(b"%d" % number), path, overwrite=True)

    with ThreadPoolExecutor(8) as threads:
        assert all(done.exception() is None for done in [threads.submit(write, number) for number in range(80)])
    assert [file.name for file in tmp_path.iterdir()] == [path.name] and atomic_files.is_marked(path)


@each_writer
@pytest.mark.parametrize("at", ["write", "flush", "replace"])
def test_a_full_disk_leaves_what_was_there(name, at, tmp_path, monkeypatch):
    path = written(name, tmp_path)
    before = path.read_bytes()
    others = {file.name for file in tmp_path.iterdir()}

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    owner, function = {"write": (Path, "write_bytes"), "flush": (os, "fsync"), "replace": (os, "replace")}[at]
    monkeypatch.setattr(owner, function, full)
    with pytest.raises(OSError, match="No space left on device") as failure:
        WRITERS[name].write(path, 2.0)
    assert failure.value.filename == str(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert {file.name for file in tmp_path.iterdir()} == others


def in_process(code: str, *arguments: str) -> subprocess.CompletedProcess:
    """The code run by itself, with the writers at hand."""
    head = "import io, os, resource, signal, sys\nfrom pathlib import Path\nfrom tests.store.writers import WRITERS\n"
    command = [sys.executable, "-X", "faulthandler", "-c", head + textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def tiny_disk(folder: Path) -> bool:
    """Whether a disk of 64 KiB could be had at `folder`."""
    mount = ["/bin/mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    return Path(mount[0]).exists() and subprocess.run(mount, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_a_disk_that_fills_up_ends_no_process(tmp_path):
    """Every writer at many lengths that the system allows a file, and, where one can be mounted, on a full disk."""
    code = """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    folder, disk = Path(sys.argv[1]), Path(sys.argv[2])

    def outcomes(folder, *about):
        for name, writer in WRITERS.items():
            path = folder / f"result{writer.ending}"
            try:
                writer.write(path, 1.0)
                outcome = "written"
            except OSError as error:
                outcome = f"refused {Path(error.filename).stem}"
            print(*about, name, outcome, file=said)
            hidden = list(folder.glob(".*"))
            assert not hidden, hidden
            for file in folder.glob("result*"):
                file.unlink()

    said = io.StringIO()
    for limit in (0, 1, 100, 2000, 5000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        outcomes(folder, limit)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for used in (65536, 61440) if os.path.ismount(disk) else ():
        (disk / "used").write_bytes(bytes(used))
        outcomes(disk, used)
    print(said.getvalue())
    """
    folder, disk = tmp_path / "folder", tmp_path / "disk"
    folder.mkdir()
    disk.mkdir()
    is_mounted = tiny_disk(disk)
    try:
        finished = in_process(code, str(folder), str(disk))
    finally:
        if is_mounted:
            subprocess.run(["/bin/umount", str(disk)], check=True)
    assert finished.returncode == 0 and "Error" not in finished.stderr, finished.stderr
    lines = finished.stdout.split("\n")[:-2]
    assert len(lines) == (7 if is_mounted else 5) * len(WRITERS)
    assert all(line.endswith(("written", "refused result")) for line in lines), lines
    assert all(line.endswith("refused result") for line in lines if line.startswith(("0 ", "1 ", "65536 ")))


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_the_old_file_or_the_new(tmp_path):
    """Every writer in twenty children of one process, each killed at a moment of its own."""
    code = """
    import random
    from theorykit import atomic_files, store
    killed, left = 0, 0
    for name, writer in WRITERS.items():
        folder = Path(sys.argv[1]) / name
        path = folder / f"result{writer.ending}"
        for seed in range(20):
            writer.write(path, 1.0)
            child = os.fork()
            if child == 0:
                random.seed(seed)
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.1))  # nothing handles it, so it kills
                while True:
                    writer.write(path, random.random())
            killed += os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGALRM
            left += bool(list(folder.glob(".*")))
            assert atomic_files.is_marked(path) and not atomic_files.is_damaged(path.read_bytes())
            if writer.ending == ".nc":
                store.read(path)
            writer.write(path, 3.0)
            assert not list(folder.glob(".*")), list(folder.glob(".*"))
    print(killed, left, len(WRITERS))
    """
    finished = in_process(code, str(tmp_path))
    assert finished.returncode == 0, finished.stderr
    killed, left, writers = map(int, finished.stdout.split())
    assert killed == 20 * writers and left > 0


@pytest.mark.parametrize("pattern", ["examples/*.png", "benchmarks/results/*.png", "derivations/*.md"])
def test_files_of_the_repository_that_a_script_replaces_carry_the_mark(pattern):
    files = [path for path in ROOT.glob(pattern) if path.name != "notation.md"]
    assert files
    for path in files:
        assert atomic_files.is_marked(path), path


def writes_a_file(call: ast.Call) -> bool:
    """Whether a call writes to disk by itself."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    modes = [each.value for each in (*call.args, *(k.value for k in call.keywords)) if isinstance(each, ast.Constant)]
    if name in ("open", "fdopen"):
        return any(isinstance(mode, str) and re.fullmatch(r"[rwaxbt]*[wax+][bt+]*", mode) for mode in modes)
    if name == "to_netcdf":
        return bool(call.args)  # without a path it is bytes
    return name in ("write_bytes", "tofile", "to_zarr") or ast.unparse(call.func) in (
        "np.save",
        "np.savetxt",
        "json.dump",
    )


def test_no_module_writes_files_but_that_of_files_that_are_whole():
    found = {}
    for path in (ROOT / "theorykit").rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        if any(map(writes_a_file, calls)):
            found[path.name] = [ast.unparse(call)[:80] for call in calls if writes_a_file(call)]
    assert set(found) == {"atomic_files.py"}, found
