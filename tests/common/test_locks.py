"""One process at a time, and none that has ended; a child keeps what it inherits."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from fairseq_plugins.common.locks import Busy, exclusive_lock

HOLD_AND_DIE = """
import os, signal, subprocess, sys
from pathlib import Path
from fairseq_plugins.common.locks import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), "this") as lock:
    child = subprocess.Popen([sys.executable, "-c", "input()"], pass_fds=[lock])
    print(child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "run.lock"


def test_who_holds_it_is_named_until_it_is_free(path):
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    for _ in range(2):  # the second time over the text of the first
        with exclusive_lock(path, "this run"):
            for _ in range(2):  # who asks leaves the text as it is
                with pytest.raises(Busy, match=f"^{holder} already holds this run$"):
                    exclusive_lock(path, "this run").__enter__()
    with exclusive_lock(path, "this run"):
        pass


def test_who_waits_says_so_once_and_goes_on_when_it_is_free(path):
    order, is_held, is_awaited = [], threading.Event(), threading.Event()

    def hold():
        with exclusive_lock(path, "this"):
            is_held.set()
            assert is_awaited.wait(60)
            order.append("first")

    def wait(message):
        assert message.endswith("already holds this; waiting for it")
        is_awaited.set()

    other = threading.Thread(target=hold)
    other.start()
    assert is_held.wait(60)
    with exclusive_lock(path, "this", wait):
        order.append("second")
    other.join()
    assert order == ["first", "second"]


def test_a_child_holds_the_lock_when_its_parent_is_killed_and_no_longer(path):
    """Two trainings in one folder would spoil each other's checkpoints."""
    command = [sys.executable, "-c", HOLD_AND_DIE, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        child = int(holder.stdout.readline())
        assert holder.wait(60) == -signal.SIGKILL
        with pytest.raises(Busy, match=f"process {holder.pid} on "), exclusive_lock(path, "this"):
            pass
        os.kill(child, signal.SIGKILL)
        with exclusive_lock(path, "this", lambda message: None):
            pass


def test_a_child_keeps_the_lock_when_its_parent_lets_go(path):
    with exclusive_lock(path, "this") as lock:
        command = [sys.executable, "-c", "input()"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[lock])
    with child:
        with pytest.raises(Busy), exclusive_lock(path, "this"):
            pass
        child.kill()
    with exclusive_lock(path, "this"):
        pass


def test_a_file_system_without_locks_is_named(path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("filelock.lock_descriptor", refuse)
    with (
        pytest.raises(OSError, match=r"\.lock cannot be locked .*mounted with `flock`"),
        exclusive_lock(path, "this"),
    ):
        raise AssertionError


def test_a_lock_that_is_closed_is_free_once_a_copy_of_it_is_closed(path):
    """A command that another thread starts has one until it runs."""
    with exclusive_lock(path, "this") as lock:
        copy = os.dup(lock)
    threading.Timer(0.03, os.close, [copy]).start()
    with exclusive_lock(path, "this"):
        pass
