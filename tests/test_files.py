"""Files are written whole or not at all: killed processes, full disks, and several processes with one folder."""

import os
import signal
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest

from arbormax._files import atomic_write, temporary_folder, write_file
from arbormax._locks import lock_folder
from arbormax.model import load_model, save_model
from toy import TREE, examples, settings

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX locks and signals")
KILLED = {
    "file": "with _files.atomic_write(folder / 'x') as file: file.write(b'half'); os.kill(os.getpid(), 9)",
    "folder": "with _files.temporary_folder(folder) as new: (new / 'x').touch(); os.kill(os.getpid(), 9)",
}


def run_script(body: str, folder: Path) -> int:
    script = f"import os, pathlib; from arbormax import _files; folder = pathlib.Path({str(folder)!r})\n{body}"
    return subprocess.run([sys.executable, "-c", script], check=False).returncode


@pytest.mark.parametrize("kind", KILLED)
def test_what_a_killed_process_leaves_is_removed_by_the_next_write(tmp_path, kind):
    assert run_script(KILLED[kind], tmp_path) == -signal.SIGKILL
    assert [path.name[:10] for path in tmp_path.iterdir()] == [".arbormax-"]
    write_file(tmp_path / "y", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["y"]


def test_temporary_files_in_use_are_kept(tmp_path):
    with atomic_write(tmp_path / "x") as file, temporary_folder(tmp_path) as folder:
        file.write(b"1")
        assert run_script("_files.write_file(folder / 'y', 'other')", tmp_path) == 0
        (folder / "z").touch()
    assert (tmp_path / "x").read_bytes() == b"1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


def write_many(folder: str) -> None:
    for number in range(200):
        write_file(Path(folder) / str(number % 3), str(number))


def test_several_processes_can_write_to_one_folder(tmp_path):
    processes = [get_context("spawn").Process(target=write_many, args=(str(tmp_path),)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]


def test_a_lock_names_its_owner_and_is_free_after_the_block(tmp_path):
    lock = tmp_path / "state" / "lock"
    with lock_folder(lock), lock_folder(lock):
        assert f'"pid": {os.getpid()}' in lock.read_text()
        script = "from arbormax._locks import lock_folder\nwith lock_folder(folder / 'state' / 'lock', 'out'): pass"
        assert run_script(script, tmp_path) == 1
    assert not lock.parent.exists()
    with lock_folder(lock):
        (lock.parent / "kept").touch()
    assert lock.exists()
    assert run_script(script, tmp_path) == 0


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a file system of 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("needs the right to mount a file system")
    except OSError:
        pytest.skip("needs the program mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_reported_with_the_name_of_the_file(small_disk):
    write_file(small_disk / "x", b"old")
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_file(small_disk / "x", b"1" * 200_000)
    assert caught.value.filename == str(small_disk / "x")
    assert [path.name for path in small_disk.iterdir()] == ["x"]
    assert (small_disk / "x").read_bytes() == b"old"


def test_a_full_disk_while_saving_leaves_the_old_model(small_disk):
    from arbormax.model import Model

    folder = small_disk / "model"
    old = Model.new(examples(30).inputs, TREE, settings(encoder_options={"dim": 2, "char_ngrams": 0}).resolved())
    save_model(old, folder)
    before = sorted(path.name for path in folder.iterdir())
    big = Model.new(examples(30).inputs, TREE, settings(encoder_options={"dim": 2000}).resolved())
    with pytest.raises(OSError, match="No space left on device") as caught:
        save_model(big, folder)
    assert str(folder) in str(caught.value)
    assert ".arbormax-" not in str(caught.value)
    assert sorted(path.name for path in folder.iterdir()) == before
    load_model(folder)


def test_a_full_disk_during_training_leaves_the_last_checkpoint(small_disk):
    from arbormax.training import fit

    with pytest.raises(OSError, match="No space left on device") as caught:
        fit(settings(epochs=2, encoder_options={"dim": 2000}), TREE, examples(24), folder=small_disk / "run")
    assert str(caught.value.filename).endswith("last.ckpt")
    assert not list(small_disk.rglob(".arbormax-*"))
    assert not list(small_disk.rglob("*.tmp"))
