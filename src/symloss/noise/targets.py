"""Corrupt regression targets (definition F.1), and record how in a manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution

from symloss import __version__, checks
from symloss.noise import manifest as files

Targets = NDArray[np.float64]

JSON, NPZ = "targets.json", "targets.npz"
SETTINGS = ("rate", "distribution", "seed", "version")


@dataclass(frozen=True)
class TargetManifest:
    """A record of how targets were corrupted: the settings, and what was measured on the result.

    Attributes:
        rate: p, the probability that a target is replaced.
        distribution: q, as a text; a sample is named by its SHA-256.
        seed: the seed of the corruption.
        version: of the package.
        shape: of the targets.
        replaced: how many targets were drawn from q.
        clean_sha256, noisy_sha256: of the targets as little-endian 64-bit numbers.
        replaced_sha256: of the mask of replaced targets, a byte for each.
    """

    rate: float
    distribution: str
    seed: int
    version: str
    shape: tuple[int, ...]
    replaced: int
    clean_sha256: str
    noisy_sha256: str
    replaced_sha256: str

    @property
    def share(self) -> float:
        """The share of all targets that were replaced."""
        return self.replaced / int(np.prod(self.shape))

    def document(self) -> dict[str, Any]:
        """Return the manifest for JSON, with the share of replaced targets, and with a checksum."""
        return files.with_checksum(asdict(self) | {"shape": list(self.shape), "share": self.share})


@dataclass(frozen=True, eq=False)
class TargetCorruption:
    """Corrupted targets, the clean ones they come from, which were replaced, and the manifest."""

    targets: Targets
    clean: Targets
    replaced: NDArray[np.bool_]
    manifest: TargetManifest

    def save(self, folder: str | Path) -> None:
        """Write targets.npz and targets.json, each of them whole or not at all."""
        files.write_arrays(Path(folder, NPZ), targets=self.targets, clean=self.clean, replaced=self.replaced)
        files.write_document(Path(folder, JSON), self.manifest.document())


def load_target_corruption(folder: str | Path) -> TargetCorruption:
    """Read what ``TargetCorruption.save`` wrote to a folder. Damaged files, or files of different runs, are refused.

    Args:
        folder: the folder with targets.npz and targets.json.
    """
    folder = Path(folder)
    document = files.read_document(folder / JSON, SETTINGS)
    targets, clean, replaced = files.read_arrays(folder / NPZ, "targets", "clean", "replaced")
    targets, clean = _target_array("targets", targets), _target_array("clean", clean)
    if replaced.dtype != np.bool_ or not targets.shape == clean.shape == replaced.shape:
        raise ValueError(
            f"{str(folder / NPZ)!r} must hold targets, clean and the mask replaced of one shape; "
            f"got {targets.shape}, {clean.shape} and {replaced.dtype} of {replaced.shape}"
        )
    manifest = _describe(targets, clean, replaced, **{name: document[name] for name in SETTINGS})
    files.refuse_strangers(folder, JSON, NPZ, document, manifest.document())
    return TargetCorruption(targets, clean, replaced, manifest)


def corrupt_targets(
    y: object, rate: float, distribution: AnyTargetDistribution, x: Any = None, *, seed: int
) -> TargetCorruption:
    """Replace each target with probability ``rate`` by a draw from a corruption distribution (definition F.1).

    The targets then have the density p q_x + (1 - p) D_{y|x}. The same arguments give the same targets, on every call;
    no global random state is read or changed. With a higher rate the same targets are replaced, by the same draws, and
    more of them.

    Args:
        y: the clean targets, of shape (N,) or (N, ...); a numpy array, a tensor or a list. They become float64.
        rate: p, in [0, 1).
        distribution: q, as in :class:`symloss.theory.regression.SymmetrizedRegression`: a torch distribution (a
            batch of them differs from example to example), a sample of corrupted targets (M,), or a function of x that
            returns either.
        x: the features, handed to a distribution that is a function of x.
        seed: the seed of the corruption.

    >>> from torch.distributions import Normal
    >>> noisy = corrupt_targets([1.0, 2.0, 3.0, 4.0], 0.5, Normal(0.0, 1.0), seed=0)
    >>> noisy.replaced, bool((noisy.targets == noisy.clean)[~noisy.replaced].all())
    (array([False,  True,  True,  True]), True)
    """
    rate = checks.number("rate", rate, "[0, 1)")
    seed = int(checks.number("seed", seed, "[0, inf)", whole=True))
    clean = _target_array("y", y)
    argument, of_x = "distribution", ""
    if callable(distribution) and not isinstance(distribution, Distribution):
        if x is None:
            raise TypeError("x must be given, because the distribution is a function of x; got None")
        of_x = f"{getattr(distribution, '__qualname__', type(distribution).__name__)} of x: "
        argument, distribution = "distribution(x)", distribution(x)
    q = target_distribution(distribution, argument)
    text = f"{of_x}{q!r}" + (f", sha256 {files.sha256(q.source.numpy())}" if isinstance(q.source, Tensor) else "")
    rng = np.random.Generator(np.random.PCG64(seed))
    replaced = rng.random(clean.shape) < rate
    targets = np.where(replaced, _draws(q, clean.shape, rng), clean)
    if not np.isfinite(targets).all():
        raise ValueError(f"distribution must draw finite targets; got NaN or infinity from {text}")
    settings = {"rate": rate, "distribution": text, "seed": seed, "version": __version__}
    return TargetCorruption(targets, clean, replaced, _describe(targets, clean, replaced, **settings))


def _describe(targets: Targets, clean: Targets, replaced: NDArray[np.bool_], **settings: Any) -> TargetManifest:
    return TargetManifest(
        shape=clean.shape,
        replaced=int(replaced.sum()),
        clean_sha256=files.sha256(clean),
        noisy_sha256=files.sha256(targets),
        replaced_sha256=files.sha256(replaced),
        **settings,
    )


def _target_array(argument: str, value: object) -> Targets:
    """Return a copy in float64, refused unless it holds finite real numbers."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().to(torch.float64 if value.is_floating_point() else value.dtype).numpy()
    try:
        array = np.asarray(value)
    except ValueError:
        raise TypeError(f"{argument} must be an array of numbers; got {checks.brief(value)}") from None
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{argument} must hold real numbers; got {array.dtype}")
    if not array.ndim or not array.size:
        raise ValueError(f"{argument} must have shape (N,) or (N, ...) with at least one target; got {array.shape}")
    found: Targets = array.astype(np.float64)
    if not np.isfinite(found).all():
        raise ValueError(f"{argument} must hold finite numbers; got NaN or infinity")
    return found


def _draws(q: TargetDistribution, shape: tuple[int, ...], rng: np.random.Generator) -> Targets:
    """Return one draw for each target, also for those that stay clean, so that draws do not depend on the rate."""
    seed, devices = int(rng.integers(2**63)), list(range(torch.cuda.device_count()))
    # torch's distributions draw from its global generators, which are restored afterwards.
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed_all(seed)
        try:
            drawn = q.draw(shape)
        except (RuntimeError, NotImplementedError) as error:
            raise ValueError(
                f"distribution must have a batch that broadcasts to the shape {shape} of y; got {q.batch} in {q!r}"
            ) from error
    found: Targets = drawn.detach().cpu().double().numpy()
    return found


Fixed: TypeAlias = Distribution | Tensor | np.ndarray[Any, Any] | Sequence[float]
AnyTargetDistribution: TypeAlias = Fixed | Callable[[Any], Fixed]

WANTED = "must be a torch distribution, a sample of corrupted targets or a function of x giving one"


class TargetDistribution:
    """The distribution of corrupted targets.

    Args:
        source: a torch distribution of single numbers, whose batch broadcasts to the shape of the targets; or a sample
            (M,) in float64, each target of which is as likely as any other.
    """

    def __init__(self, source: Distribution | Tensor):
        self.source = source
        self.batch: tuple[int, ...] = () if isinstance(source, Tensor) else tuple(source.batch_shape)

    def __repr__(self) -> str:
        return f"a sample of {len(self.source)}" if isinstance(self.source, Tensor) else checks.brief(self.source)

    def draw(self, shape: tuple[int, ...]) -> Tensor:
        """Draw independent corrupted targets of this shape, by torch's global generator."""
        if isinstance(self.source, Tensor):
            return self.source[torch.randint(len(self.source), shape)]
        refuse_vectors(self.source)
        if self.batch in ((), shape):
            drawn: Tensor = self.source.sample(torch.Size(shape[: len(shape) - len(self.batch)]))
        else:
            drawn = self.source.expand(torch.Size(shape)).sample()
        return drawn


def target_distribution(given: object, argument: str = "corruption") -> TargetDistribution:
    """Turn a torch distribution or a sample (M,) into a :class:`TargetDistribution`; refuse anything else.

    >>> target_distribution([1.0, 2.0])
    a sample of 2
    """
    if isinstance(given, TargetDistribution):
        return given
    if isinstance(given, Distribution):
        _refuse_not_finite(given)
        return TargetDistribution(given)
    if isinstance(given, (Tensor, np.ndarray, list, tuple)):
        return TargetDistribution(_sample(given, argument))
    raise TypeError(f"{argument} {WANTED}; got {checks.brief(given)}")


def refuse_vectors(distribution: Distribution) -> None:
    """Raise ValueError for a distribution of vectors."""
    if distribution.event_shape:
        raise ValueError(
            "corruption must be a distribution of single numbers; "
            f"got {type(distribution).__name__} with event shape {tuple(distribution.event_shape)}"
        )


def _refuse_not_finite(distribution: Distribution) -> None:
    for name in distribution.arg_constraints if isinstance(distribution.arg_constraints, dict) else ():
        value = getattr(distribution, name, None)
        if isinstance(value, Tensor) and name != "logits" and not bool(value.isfinite().all()):
            raise ValueError(
                f"corruption {type(distribution).__name__} must have finite parameters; "
                f"got {name} = {float(value[~value.isfinite()].flatten()[0])}"
            )


def _sample(given: object, argument: str) -> Tensor:
    try:
        values = torch.as_tensor(given).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{argument} {WANTED}; got {checks.brief(given)}") from error
    sample = "a sample of corrupted targets must"
    if values.dtype == torch.bool or values.is_complex():
        raise TypeError(f"{sample} hold real numbers; got {values.dtype}")
    if values.dim() != 1 or not len(values):
        raise ValueError(f"{sample} have shape (M,) with M above 0; got {tuple(values.shape)}")
    if not bool(values.isfinite().all()):
        raise ValueError(f"{sample} hold finite numbers; got NaN or infinity")
    return values.double()
