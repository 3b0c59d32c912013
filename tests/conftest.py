"""What several test files share: quiet small inputs, the value and gradient of a loss, and a browser."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from types import SimpleNamespace

import pytest
import torch
from in_turn import in_turn
from torch import Tensor
from warm_python import WarmPython

import symloss
from symloss.losses.catalogue import RECORDS
from symloss.theory.certificates import Certificate

LOSSES = symloss.list_losses()
CLASSES = 4

every_loss = in_turn("name", LOSSES)
"""Marks a test that must hold for each loss of the catalogue."""

# No test asks a hub for anything, or tells it.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
# Nor does it find or leave features of texts in the home of whoever runs it.
_home = tempfile.TemporaryDirectory(prefix="symloss-data-")
os.environ["SYMLOSS_DATA"] = _home.name

# The tensors of the tests are tiny: threads only cost, and xdist has a process for each core.
torch.set_num_threads(1)


@atexit.register
def _hide_what_triton_says_at_the_end() -> None:
    """Hide Triton's list of leaked functions. Where torch brings Triton along, its compiler imports it."""
    if "triton._C.libtriton" in sys.modules:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests live to the end: to look for garbage among them takes as long as to collect them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, dealt out to the processes: none waits at the end for a long test of another.

    With ``--dist worksteal`` each process begins with its share of the list, and then takes from the end of others.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    files = sorted(dict.fromkeys(item.path for item in items), key=lambda path: path not in slow)
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    place = {path: (number % processes, number) for number, path in enumerate(files)}
    items.sort(key=lambda item: place[item.path])


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Weights of models are the same in every run, in any order of tests."""
    torch.manual_seed(0)


@functools.cache
def certified(name: str, classes: int) -> Certificate:
    """The certificate of a loss at its defaults. Several tests read it, and it takes half a second."""
    return symloss.certify(RECORDS[name].loss(), classes)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_scores(*shape: int, seed: int = 0, spread: float = 1.5) -> Tensor:
    """Scores in float64 at which no loss is extreme."""
    return spread * torch.randn(*shape, dtype=torch.float64, generator=generator(seed))


def random_labels(*shape: int, classes: int = CLASSES, seed: int = 1) -> Tensor:
    return torch.randint(classes, shape, generator=generator(seed))


def random_probabilities(*shape: int, dim: int = 1, seed: int = 2) -> Tensor:
    return random_scores(*shape, seed=seed).softmax(dim)


def value_and_grad(loss: Callable, scores: Tensor, *args: Tensor, **options: object) -> tuple[Tensor, Tensor]:
    """The loss, and the gradient of its entries weighed 1, 2, 3, ... (so that none can hide behind another)."""
    leaf = scores.detach().requires_grad_()
    value = loss(leaf, *args, **options)
    weights = torch.arange(1, value.numel() + 1, dtype=value.dtype).reshape(value.shape)
    (gradient,) = torch.autograd.grad((weights * value).sum(), leaf)
    return value.detach(), gradient


def assert_close(actual: object, expected: object, tolerance: float = 1e-12, *, equal_nan: bool = False) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=equal_nan)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A run that nobody interrupted. It is here because a second conftest.py could be imported in place of this one."""
    from training_helpers import run, small  # noqa: PLC0415 (only the tests of training can import it)

    folder = tmp_path_factory.mktemp("whole") / "run"
    run(small(), folder)
    return folder


@pytest.fixture(scope="session")
def warm_python() -> Iterator[WarmPython]:
    """Runs commands without the wait for torch."""
    server = WarmPython()
    yield server
    server.close()


@pytest.fixture
def run_command(warm_python: WarmPython) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``symloss ARGUMENTS`` in a process of its own, with ``cwd`` if that is given."""
    return lambda *arguments, **options: warm_python.run(["-m", "symloss", *arguments], **options)


@pytest.fixture
def ends(run_command):
    """What a command writes to stdout, or to stderr if it is refused, with the exit code that is expected."""

    def run(code, folder, *words):
        done = run_command(*words, cwd=folder)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr if code == 2 else done.stdout

    return run


@pytest.fixture
def encoded(monkeypatch):
    """The texts that MiniLM is given, and the devices that encoders of texts are asked for."""
    from symloss.encoders import texts  # noqa: PLC0415 (most tests need none)

    found = SimpleNamespace(texts=[], devices=[])
    encode, device = texts._MiniLM.encode, texts.chosen_device
    monkeypatch.setattr(
        texts._MiniLM, "encode", lambda self, given, batch: (found.texts.extend(given), encode(self, given, batch))[1]
    )
    monkeypatch.setattr(texts, "chosen_device", lambda name: (found.devices.append(name), device("cpu"))[1])
    return found


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Chromium without a window."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("there is no chromium with its chromedriver here")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
        "--disable-component-update", "--no-first-run", "--no-default-browser-check", "--window-size=1280,900",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    try:
        yield opened
    finally:
        opened.quit()
