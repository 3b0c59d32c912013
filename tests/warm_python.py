"""Commands without the wait for torch: processes forked from one that has imported it.

To import torch takes seconds, and a test of a command spends nearly all of its time on that. Here a server imports it
once, and runs each command in a fork: with arguments, folder, environment, input, output and exit code of its own, as a
process that was started in the usual way. It can be asked in two ways:

- ``WarmPython.run(["-m", "symloss", "losses"])`` is ``subprocess.run([sys.executable, "-m", "symloss", "losses"])``;
- a shell that finds ``WarmPython.programs`` first in its PATH has ``symloss`` and ``python`` from here.

Whether a command imports what it needs cannot be seen this way. The tests of the wheel start real processes.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from forked_processes import PRELOADED

CLIENT = """#!{python} -SE
import array, json, os, socket, sys
door = socket.socket(socket.AF_UNIX)
door.connect({door!r})
order = json.dumps([{first!r} + sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
streams = array.array("i", [0, 1, 2])
door.sendmsg([len(order).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
door.sendall(order)
sys.exit(door.recv(1)[0])
"""


class WarmPython:
    """The server, as long as it is open."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        self.programs = Path(self._folder.name)
        door = self.programs / "door"
        for name, first in (("python", []), ("symloss", ["-m", "symloss"])):
            program = self.programs / name
            program.write_text(CLIENT.format(python=sys.executable, door=str(door), first=first))
            program.chmod(0o755)
        command, streams = [sys.executable, __file__, door], {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        self._server = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, **streams)
        assert self._server.stdout is not None
        with self._server.stdout as said:
            assert said.readline() == b"ready\n", "the server did not start"

    def run(self, arguments: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
        """As ``subprocess.run`` of Python with these arguments; its output is kept."""
        command = [str(self.programs / "python"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()
        self._folder.cleanup()


def _serve(path: str) -> None:
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.path.pop(0)  # the folder of this file
    gc.freeze()  # what is never collected is never copied to the forks
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that have ended
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen(16)
        print("ready", flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        while True:
            visitor, _ = door.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                door.close()
                break
            visitor.close()
    order, streams = _received(visitor)
    worker = os.fork()
    if worker == 0:
        visitor.close()
        _leave(_exit_code(order, streams))
    for stream in streams:
        os.close(stream)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    visitor.sendall(bytes([code % 256 if code >= 0 else 128 - code]))
    os._exit(0)


def _received(visitor: socket.socket) -> tuple[list[Any], list[int]]:
    streams = array.array("i")
    size, extra, *_ = visitor.recvmsg(8, socket.CMSG_SPACE(3 * streams.itemsize))
    streams.frombytes(extra[0][2])
    text = b""
    while len(text) < int.from_bytes(size, "big"):
        text += visitor.recv(1 << 16)
    return json.loads(text), list(streams)


def _exit_code(order: list[Any], streams: list[int]) -> int:
    try:
        _become(order, streams)
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _leave(code: int) -> NoReturn:
    """As Python ends, except that it does not take every module of torch apart, which takes a second."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _become(order: list[Any], streams: list[int]) -> None:
    """Go on as the process that was asked for."""
    (first, *arguments), folder, environment = order
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if first == "-m":
        module, *arguments = arguments
        sys.argv = [module, *arguments]
        sys.path.insert(0, folder)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *arguments]
        sys.path.insert(0, str(Path(first).resolve().parent))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _serve(sys.argv[1])
