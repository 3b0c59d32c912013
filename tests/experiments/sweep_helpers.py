"""Small pieces of work for sweeps and searches."""

import json

from symloss.experiments.run import Work
from symloss.training import Settings


def small(loss="ce", **changes):
    return Settings(**{"loss": loss, "epochs": 2, "subset": 120, "validation": 0.0, "noise": "sym:0.4"} | changes)


def work(folder, loss="ce", evaluate=(), **changes):
    settings = small(loss, **changes)
    return Work(f"{loss} seed {settings.seed}", settings, folder / settings.key, evaluate)


def small_cifar10(root, images=10):
    """CIFAR-10 of a few black images, in its binary layout."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir()
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (folder / f"{name}.bin").write_bytes(b"".join(bytes([k % 10]) + bytes(3072) for k in range(images)))


def kinds(events):
    """name -> how it ended."""
    return {event.work.name: event.kind for event in events if event.kind not in ("started", "epoch")}


def results(runs):
    """folder -> its result, with what a clock says left out."""
    found = {}
    for path in sorted(runs.glob("*/result.json")):
        result = json.loads(path.read_text())
        del result["seconds"]
        for row in (result["last"], result["best"]):
            del row["seconds"]
        found[path.parent.name] = result
    return found
