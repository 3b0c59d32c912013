"""Small pieces of work for sweeps."""

import json

from symloss.experiments.run import Work
from symloss.training import Settings


def small(loss="ce", **changes):
    return Settings(**{"loss": loss, "epochs": 2, "subset": 120, "validation": 0.0, "noise": "sym:0.4"} | changes)


def work(folder, loss="ce", evaluate=(), **changes):
    settings = small(loss, **changes)
    return Work(f"{loss} seed {settings.seed}", settings, folder / settings.key, evaluate)


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
