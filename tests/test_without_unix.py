"""What Windows lacks is not needed: neither for an import, nor to fit, write, read and apply a model."""

import subprocess
import sys

HIDDEN = """
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
"""


def run(code, *arguments):
    command = [sys.executable, "-c", HIDDEN + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_every_module_can_be_imported():
    code = """
import importlib, pkgutil, symloss
for module in pkgutil.walk_packages(symloss.__path__, "symloss."):
    if not any(part in module.name for part in (".__main__", ".adapters.", ".bench.")):
        importlib.import_module(module.name)
print("imported")
"""
    assert run(code)[-1] == "imported"  # Ray prints what it misses


def test_a_model_is_fitted_written_and_read(tmp_path):
    table = tmp_path / "rows.csv"
    lines = [f"{i % 7},{i % 2 * 3 + i % 5},{'ab'[i % 2]}" for i in range(60)]
    table.write_text("\n".join(["x,z,label", *lines]) + "\n")
    code = """
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
print("done")
"""
    assert run(code, tmp_path / "model", table)[-1] == "done"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rows.csv"]
