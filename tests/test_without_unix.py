"""What Windows lacks is not needed: neither for an import, nor to fit, write, read and apply a model."""

import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, warnings
for module in ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog"):
    sys.modules[module] = None  # importing it raises ImportError
warnings.filterwarnings("ignore", "only soft file lock")
import numpy, torch, sklearn.ensemble, scipy.stats, joblib, skops.io  # these know Windows, and look at its name
for name in (
    "chown", "fchmod", "fchown", "fork", "getegid", "geteuid", "getgid", "getloadavg", "getpgid", "getuid", "killpg",
    "mkfifo", "nice", "register_at_fork", "sched_getaffinity", "setsid", "statvfs", "sysconf", "uname",
    "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK",
):
    vars(os).pop(name, None)
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "alarm", "setitimer", "pthread_sigmask"):
    vars(signal).pop(name, None)

from symloss.cli.application import main
folder, table = sys.argv[1:]
for arguments in (
    ["fit", "--data", table, "--budget", "1", "--out", folder],
    ["fit", "--data", table, "--budget", "1", "--out", folder, "--overwrite"],
    ["predict", folder, "--data", table],
    ["audit", folder],
):
    sys.argv = ["symloss", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, arguments

import importlib, pkgutil, symloss
for module in pkgutil.walk_packages(symloss.__path__, "symloss."):
    if not any(part in module.name for part in (".__main__", ".adapters.")):
        importlib.import_module(module.name)
print("done")
"""


@pytest.mark.slow
def test_every_module_is_imported_and_a_model_fitted_written_and_read(tmp_path):
    table, folder = tmp_path / "rows.csv", tmp_path / "model"
    lines = [f"{i % 7},{i % 2 * 3 + i % 5},{'ab'[i % 2]}" for i in range(60)]
    table.write_text("\n".join(["x,z,label", *lines]) + "\n")
    command = [sys.executable, "-c", SCRIPT, folder, table]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.split()[-1]) == (0, "done"), ran.stderr  # Ray prints what it misses
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rows.csv"]
