"""Mutation testing with a fixed list of mutants: does the suite still catch what it caught before?

`draw` writes the list, `where` finds its statements in the tree, `reach` finds out which tests execute which mutant,
`run` tests each mutant, `compare` compares two result files. Nothing is changed in the working tree: mutants live in a
temporary copy of it.

A mutant is one statement with one change. It is recorded as source, before and after, so that it is found again when
its file is moved or renamed. Where the statement itself is rewritten, `where` in the list takes the new statement:
`{"file": ..., "function": ..., "before": "if x: pass", "after": "if not x: pass"}`, each of them optional;
or `{"gone": reason}`, if the behaviour was deleted.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mutations import Place, drawn, places, source

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tools" / "mutants.json"
REACH = ROOT / "build" / "mutants" / "reach.jsonl"
Mutant = dict[str, Any]


class Scratch:
    """A copy of the tree in which statements are replaced and tests run."""

    def __init__(self, folder: str) -> None:
        self.tree = Path(folder) / "tree"
        self.log, self.wanted = Path(folder) / "log.jsonl", Path(folder) / "tests.json"
        kept = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(kept, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"):
            if name and (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)
        shutil.copy2(ROOT / "tools" / "mutant_probe.py", self.tree)

    def write(self, file: str, text: str) -> None:
        """Replace a file, and its byte code, which Python would trust within the same second."""
        path = self.tree / file
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def pytest(self, arguments: Iterable[str], timeout: float) -> tuple[int | None, list[Mutant]]:
        """Return the exit code (None after the timeout) and the rows that were noted."""
        self.log.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "mutant_probe", *arguments]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(self.tree / "src"), str(self.tree)]),
            "MUTANT_LOG": str(self.log), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        if self.wanted.exists():
            environment["MUTANT_TESTS"] = str(self.wanted)
        process = subprocess.Popen(
            command, cwd=self.tree, env=environment, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        code: int | None
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return code, rows(self.log)

    def tests(self, order: list[str], timeout: float) -> tuple[int | None, list[Mutant]]:
        """Run these tests in this order until one fails."""
        self.wanted.write_text(json.dumps(order))
        try:
            return self.pytest(["-x", *dict.fromkeys(test.partition("::")[0] for test in order)], timeout)
        finally:
            self.wanted.unlink()


def rows(path: Path) -> list[Mutant]:
    """Read a JSON Lines file; a missing file has no rows."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def listed() -> dict[str, Any]:
    """Read the list of mutants."""
    found: dict[str, Any] = json.loads(LIST.read_text()) if LIST.exists() else {"rejected": {}, "mutants": []}
    return found


def find(mutant: Mutant, everywhere: dict[str, list[Place]]) -> Place | None:
    """Return where the mutant's statement stands now: by source, then function, then file, then order of occurrence."""
    sought = mutant | (mutant["where"] or {})
    if "gone" in sought:
        return None
    found = everywhere.get(ast.unparse(ast.parse(sought["before"])), [])
    for same in (
        lambda place: place.function == sought["function"],
        lambda place: place.function.rpartition(".")[2] == sought["function"].rpartition(".")[2],
        lambda place: place.file == sought["file"],
        lambda place: Path(place.file).name == Path(sought["file"]).name,
    ):
        found = [place for place in found if same(place)] or found
    is_moved = bool(found) and found[0].function.rpartition(".")[2] == sought["function"].rpartition(".")[2]
    if not found or not (is_moved or (len(found) == 1 and len(sought["before"]) >= 40)):
        return None  # a statement such as `if found:` may be anyone's
    return found[min(int(sought["occurrence"]), len(found) - 1)]


def located(mutants: Iterable[Mutant]) -> Iterator[tuple[Mutant, Place | None]]:
    everywhere: dict[str, list[Place]] = {}
    for place in places(ROOT):
        everywhere.setdefault(place.before, []).append(place)
    for mutant in mutants:
        yield mutant, find(mutant, everywhere)


def changed(mutant: Mutant, place: Place) -> str:
    """Return the text of the file with the mutated statement."""
    after = ast.unparse(ast.parse((mutant | (mutant["where"] or {}))["after"]))
    ast.parse(text := place.replaced(source(ROOT, place.file), after))
    return text


def draw(options: argparse.Namespace) -> None:
    """Write the list. Rejected mutants stay rejected; the next of the same seed replace them."""
    old = listed()
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    commit = old.get("commit", head.strip())
    if subprocess.run(["git", "diff", "--quiet", commit, "--", "src"], cwd=ROOT, check=False).returncode:
        sys.exit(f"src has changed since the list was drawn. Check out {commit} to draw replacements.")
    kept = {mutant["id"]: mutant["where"] for mutant in old["mutants"]}
    mutants = drawn(ROOT, options.seed, options.n, set(old["rejected"]))
    for mutant in mutants:
        mutant["where"] = kept.get(mutant["id"])
    found = {"commit": commit, "seed": options.seed, "rejected": old["rejected"], "mutants": mutants}
    LIST.write_text(json.dumps(found, indent=1) + "\n")


def reach(options: argparse.Namespace) -> None:
    """Run tests once, with a probe before each mutant's statement, and add to the table of who executes what."""
    REACH.parent.mkdir(parents=True, exist_ok=True)
    probes: dict[str, list[tuple[int, str]]] = {}
    for mutant, place in located(listed()["mutants"]):
        if place is not None and place.probe is not None:
            line, indent = place.probe
            call = f'{" " * indent}import mutant_probe; mutant_probe.hit("{mutant["id"]}")\n'
            probes.setdefault(place.file, []).append((line, call))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        scratch = Scratch(folder)
        for file, inserted in probes.items():
            lines = source(ROOT, file).splitlines(keepends=True)
            for line, call in sorted(inserted, reverse=True):
                lines.insert(line - 1, call)
            scratch.write(file, "".join(lines))
        _, noted = scratch.pytest(options.arguments, options.timeout)
        for file in probes:
            scratch.write(file, source(ROOT, file))
        failed = [row["test"] for row in noted if row.get("outcome") == "failed"]
        still = set()
        if failed:  # because of the probes, or of the tree?
            _, again = scratch.pytest(dict.fromkeys(test.partition("[")[0] for test in failed), options.timeout)
            still = {row["test"] for row in again if row.get("outcome") == "failed"}
    with REACH.open("a") as table:
        for row in noted:
            if "outcome" in row:
                row["outcome"] = "failed" if row["test"] in still else "passed"
            table.write(json.dumps(row) + "\n")
    print(f"{sum('outcome' in row for row in noted)} tests, {len(failed)} failed with probes, {len(still)} without")


def order_for(mutant: Mutant, place: Place, table: list[Mutant]) -> tuple[list[str], list[str]]:
    """Return the tests that execute the mutant, and those of its package that are not known to; cheap ones first."""
    seconds = {row["test"]: row["seconds"] for row in table if row.get("outcome") == "passed"}
    package = place.file.split("/")[2].removesuffix(".py")
    own = {test for test in seconds if package in test.partition("::")[0].split("/")}
    reaching = {row["test"] for row in table if row.get("mutant") == mutant["id"]} & set(seconds)
    if place.probe is None:  # executed by the import
        reaching = own
    rest = (set(seconds) if place.probe is None else own) - reaching

    def cheap(tests: set[str]) -> list[str]:
        return sorted(tests, key=lambda test: (seconds[test] > 2, test not in own, seconds[test], test))

    return cheap(reaching), cheap(rest)


def verdict(mutant: Mutant, place: Place, scratch: Scratch, table: list[Mutant], limit: float) -> Mutant:
    """Test one mutant: a few cheap tests, then all that execute it, then the rest of its package."""
    reaching, rest = order_for(mutant, place, table)
    start = time.monotonic()
    status = "survived" if reaching or rest else "no tests"
    result: Mutant = {"id": mutant["id"], "status": status, "test": None, "reaching": len(reaching)}
    scratch.write(place.file, changed(mutant, place))
    for stage in filter(None, (reaching[:40], reaching[40:], rest)):
        left = limit - (time.monotonic() - start)
        code, noted = scratch.tests(stage, max(left, 1))
        failed = [row["test"] for row in noted if row.get("outcome") == "failed"]
        if code != 0:
            result["status"] = (
                "timeout" if code is None else "caught" if code in (1, 2) else f"pytest ended with {code}"
            )
            result["test"] = failed[0] if failed else None if code is None else "collection"
            break
    scratch.write(place.file, source(ROOT, place.file))
    return result | {"seconds": round(time.monotonic() - start, 1), "file": place.file}


def run(options: argparse.Namespace) -> None:
    """Test each mutant that the results do not have yet."""
    done = {row["id"] for row in rows(options.results)}
    table = rows(REACH)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, options.results.open("a") as results:
        scratch = Scratch(folder)
        for mutant, place in located(listed()["mutants"]):
            if mutant["id"] in done or (options.only and mutant["id"] not in options.only):
                continue
            if place is None:
                gone = (mutant["where"] or {}).get("gone")
                row: Mutant = {"id": mutant["id"], "status": "gone" if gone else "not found", "test": gone}
            else:
                row = verdict(mutant, place, scratch, table, options.timeout)
            print(json.dumps(row), file=results, flush=True)
            print(row["id"], row["status"], row.get("seconds", ""), row["test"] or "", flush=True)


def where(options: argparse.Namespace) -> None:
    """Say where each mutant stands now; fail if one is not found."""
    found = list(located(listed()["mutants"]))
    for mutant, place in found:
        gone = (mutant["where"] or {}).get("gone")
        lost = f"gone: {gone}" if gone else f"not found: {mutant['before']}"
        print(mutant["id"], f"{place.file}:{place.lines[0]} {place.function}" if place else lost)
    sys.exit(any(place is None and "gone" not in (mutant["where"] or {}) for mutant, place in found))


def compare(options: argparse.Namespace) -> None:
    """Fail unless every mutant caught before is caught after."""
    before, after = ({row["id"]: row for row in rows(path)} for path in (options.before, options.after))
    caught = [id for id, row in before.items() if row["status"] == "caught"]
    lost = [id for id in caught if after.get(id, {}).get("status") not in ("caught", "gone")]
    for results in (before, after):
        statuses = [row["status"] for row in results.values()]
        print({status: statuses.count(status) for status in sorted(set(statuses))})
    for id in lost:
        print(id, after.get(id, {}).get("status", "not run"), "caught before by", before[id]["test"])
    sys.exit(bool(lost))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for command in (draw, where, reach, run, compare):
        chosen = commands.add_parser(command.__name__, help=(command.__doc__ or "").strip().partition("\n")[0])
        chosen.set_defaults(command=command)
        if command is draw:
            chosen.add_argument("--seed", type=int, default=0)
            chosen.add_argument("--n", type=int, default=100)
        elif command is reach:
            chosen.add_argument("--timeout", type=float, default=7200, help="Seconds for all tests.")
            chosen.add_argument("arguments", nargs="*", help="For pytest, after `--`: folders, -m 'not slow', -n 2.")
        elif command is run:
            chosen.add_argument("results", type=Path, help="JSON Lines file; rerun the same command to resume.")
            chosen.add_argument("--only", nargs="*", help="Ids of mutants.")
            chosen.add_argument("--timeout", type=float, default=300, help="Seconds for each mutant.")
        elif command is compare:
            chosen.add_argument("before", type=Path)
            chosen.add_argument("after", type=Path)
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
