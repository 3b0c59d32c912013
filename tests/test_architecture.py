"""The house: which room may import which, and what no room may hold. Read from the source, without importing it."""

import ast
from pathlib import Path

HOUSE = Path(__file__).parents[1] / "src" / "symloss"
FILES = {path.relative_to(HOUSE).as_posix(): path for path in sorted(HOUSE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}

# Everybody may use the ground floor. A room may use every floor below its own, and no other room of its own floor.
FLOORS = [
    {"losses"},
    {"noise"},
    {"encoders"},
    {"theory", "closed_form", "data", "functional", "atlas"},
    {"training"},
    {"fit"},
    {"experiments"},
    {"adapters"},
    {"cli"},
]
GROUND = {"__version__", *(path.stem for path in HOUSE.glob("[a-z]*.py"))} - {"functional"}
ROOF = {"__init__.py", "__main__.py"}

# Inside losses: formulas, then fast paths, then evaluation.
FORMULAS = {"losses.base", "losses.potentials", "losses.score_formulas", "losses.operators"}
KERNELS_MAY = {*FORMULAS, "losses.kernels", "losses.logits", "losses.layers", "losses.validation"}
CALLED = ("losses/base.py", {"losses.criterion"})  # a loss that is called hands itself to evaluation


def module(name):
    """losses.kernels.kernels of losses/kernels/sums.py; a package is called by its folder."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def within(name, rooms):
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def imports(tree):
    """What a file imports of the package, also inside functions: ``losses.scores.UnitScores``."""
    for node in ast.walk(tree):
        names = [each.name for each in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{name}" for name in names]
        yield from (name.removeprefix("symloss.") for name in names if name.startswith("symloss."))


def rooms_for(name):
    """The rooms and modules that a module may import."""
    room = name.split(".")[0]
    if room in GROUND:
        return GROUND
    if within(name, {"losses.kernels"}):
        return GROUND | KERNELS_MAY
    number = next(i for i, floor in enumerate(FLOORS) if room in floor)
    return GROUND.union({room}, *FLOORS[:number])


def test_imports_point_down():
    wrong = []
    for name, tree in TREES.items():
        if name in ROOF:
            continue
        used = set(imports(tree))
        wrong += [f"{name}: {each}" for each in used if not within(each, rooms_for(module(name)))]
        if within(module(name), FORMULAS):
            above = {"losses.kernels", "losses.criterion"} - (CALLED[1] if name == CALLED[0] else set())
            wrong += [f"{name}: {each}" for each in used if within(each, above)]
    assert not wrong, "\n".join(sorted(wrong))


def test_modules_are_short_and_called_by_what_they_hold():
    assert not [name for name, path in FILES.items() if len(path.read_text().splitlines()) > 600]
    assert not {"utils", "util", "common", "helpers", "misc"} & {path.stem for path in FILES.values()}
