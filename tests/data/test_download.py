"""Fetching, against real servers on loopback: whole, resumed, cut off, changed, and on a full disk."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from data_helpers import IDX_NAMES, idx_bytes, largest_file, python2_pickle, random_bytes
from refusals import refused

from symloss.data import download, get, open_data
from symloss.data.download import SOURCES, Source


@dataclass
class Shop:
    """What a server offers, how it behaves, and what it was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    cut_after: int | None = None
    silent: bool = False
    length: bool = True
    moved: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def answer(self, name: str, wanted: str | None) -> tuple[int, dict[str, str], bytes]:
        if name in self.moved:
            return 302, {"Location": self.moved[name]}, b""
        content = self.files.get(name)
        if content is None:
            return 404, {}, b""
        if wanted is None or not self.ranges:
            return 200, {}, content
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            return 416, {"Content-Range": f"bytes */{len(content)}"}, b""
        return 206, {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}, content[start:]


@contextlib.contextmanager
def serving(shop: Shop) -> Iterator[Shop]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            shop.asked.append((self.path, wanted))
            if shop.silent:
                released.wait(30)
                return
            code, headers, content = shop.answer(self.path.removeprefix("/data/"), wanted)
            self.send_response(code)
            length = {"Content-Length": str(len(content))} if shop.length else {}
            for key, value in (headers | length).items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(content[: shop.cut_after])

        def log_message(self, *args: object) -> None:
            pass

    released = threading.Event()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    shop.url = f"http://127.0.0.1:{server.server_port}/data"
    try:
        yield shop
    finally:
        released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    """Loopback must be reached directly, whatever this machine's settings."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shop():
    with serving(Shop()) as open_shop:
        yield open_shop


@pytest.fixture
def mnist(shop, monkeypatch):
    """A small MNIST, published on loopback."""
    for seed, (images, labels) in enumerate(IDX_NAMES):
        shop.files[f"{images}.gz"] = gzip.compress(idx_bytes(random_bytes(6, 28, 28, seed=seed)))
        shop.files[f"{labels}.gz"] = gzip.compress(idx_bytes(random_bytes(6, seed=seed, high=10)))
    files = {name: md5(content) for name, content in shop.files.items()}
    monkeypatch.setitem(SOURCES, "mnist", Source(shop.url, "mnist", files, {}))
    return shop


CONTENT = random_bytes(1_000_000).tobytes()


@pytest.fixture
def blob(shop, monkeypatch):
    """One file of a megabyte."""
    shop.files["blob"] = CONTENT
    monkeypatch.setitem(SOURCES, "blob", Source(shop.url, "blob", {"blob": md5(CONTENT)}, {}))
    return shop


def whole(root: Path) -> bool:
    """The file is in place, and nothing else is."""
    return [path.name for path in (root / "blob").iterdir()] == ["blob"] and part(root, "blob") == CONTENT


def part(root: Path, name: str = "blob.part") -> bytes:
    return (root / "blob" / name).read_bytes()


def put_part(root: Path, content: bytes) -> None:
    (root / "blob").mkdir()
    (root / "blob" / "blob.part").write_bytes(content)


# --- Whole downloads ---------------------------------------------------------------------------------------------


def test_files_are_fetched_and_can_be_opened(tmp_path, mnist):
    assert get("mnist", tmp_path) == tmp_path / "mnist"
    assert {path.name: path.read_bytes() for path in (tmp_path / "mnist").iterdir()} == mnist.files
    assert len(open_data("mnist", root=tmp_path).train) == 6


def test_the_root_is_the_usual_one(tmp_path, mnist, monkeypatch):
    monkeypatch.setenv("SYMLOSS_DATA", str(tmp_path))
    assert get("mnist") == tmp_path / "mnist"


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_mirror(tmp_path, blob, monkeypatch, slash):
    monkeypatch.setitem(SOURCES, "blob", SOURCES["blob"]._replace(url="http://127.0.0.1:9/"))
    get("blob", tmp_path, base_url=blob.url + slash)
    assert whole(tmp_path)


def test_what_is_there_is_verified_and_not_fetched_again(tmp_path, mnist):
    get("mnist", tmp_path)
    damaged = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    damaged.write_bytes(b"damaged")
    mnist.asked.clear()
    get("mnist", tmp_path)
    assert [path for path, _ in mnist.asked] == ["/data/train-labels-idx1-ubyte.gz"]
    assert damaged.read_bytes() == mnist.files[damaged.name]
    mnist.asked.clear()
    get("mnist", tmp_path)
    assert mnist.asked == []


def test_progress(tmp_path, blob):
    told = []
    get("blob", tmp_path, progress=lambda *news: told.append(news))
    assert told[0] == ("blob", 0, len(CONTENT))
    assert told[-1] == ("blob", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in told] == sorted({done for _, done, _ in told})
    assert len(told) > 2


# --- Broken downloads --------------------------------------------------------------------------------------------


def test_a_part_is_continued(tmp_path, blob):
    put_part(tmp_path, CONTENT[:300_000])
    told = []
    get("blob", tmp_path, progress=lambda *news: told.append(news))
    assert whole(tmp_path)
    assert blob.asked == [("/data/blob", "bytes=300000-")]
    assert told[0] == ("blob", 300_000, len(CONTENT))


def test_a_connection_that_is_cut_is_tried_again_where_it_ended(tmp_path, blob):
    blob.cut_after = 400_000
    get("blob", tmp_path)
    assert whole(tmp_path)
    assert [wanted for _, wanted in blob.asked] == [None, "bytes=400000-", "bytes=800000-"]


def test_a_connection_that_is_always_cut(tmp_path, blob):
    blob.cut_after = 1000
    with refused(ConnectionError, f"{blob.url}/blob", "ended after 3000 of 1000000 bytes", "3000 bytes are kept"):
        get("blob", tmp_path)
    assert part(tmp_path) == CONTENT[:3000]
    blob.cut_after = None
    get("blob", tmp_path)
    assert whole(tmp_path)
    assert blob.asked[-1] == ("/data/blob", "bytes=3000-")


def test_a_server_without_ranges_sends_all_again(tmp_path, blob):
    blob.ranges = False
    put_part(tmp_path, CONTENT[:300_000])
    told = []
    get("blob", tmp_path, progress=lambda *news: told.append(news))
    assert whole(tmp_path)
    assert told[0] == ("blob", 0, len(CONTENT))


def test_a_part_that_is_whole(tmp_path, blob):
    put_part(tmp_path, CONTENT)
    get("blob", tmp_path)
    assert whole(tmp_path)


@pytest.mark.parametrize("given", [CONTENT + b"x", b"x" * 1000], ids=["longer", "of another file"])
def test_a_part_of_something_else(tmp_path, blob, given):
    put_part(tmp_path, given)
    with refused(ValueError, f"{blob.url}/blob", f"must have the MD5 {md5(CONTENT)}", "deleted"):
        get("blob", tmp_path)
    assert list((tmp_path / "blob").iterdir()) == []
    get("blob", tmp_path)
    assert whole(tmp_path)


def test_a_file_that_changed_at_its_publisher(tmp_path, blob):
    put_part(tmp_path, CONTENT[:300_000])
    blob.files["blob"] = changed = CONTENT[::-1]
    found = md5(CONTENT[:300_000] + changed[300_000:])
    with refused(ValueError, md5(CONTENT), f"got {found}", "changed", "deleted"):
        get("blob", tmp_path)
    assert list((tmp_path / "blob").iterdir()) == []


def test_a_damaged_download_does_not_replace_what_is_there(tmp_path, blob):
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob" / "blob").write_bytes(b"mine")
    blob.files["blob"] = b"damaged"
    with refused(ValueError, f"got {md5(b'damaged')}"):
        get("blob", tmp_path)
    assert part(tmp_path, "blob") == b"mine"


def test_a_silent_server_is_given_up(tmp_path, blob, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.05)
    blob.silent = True
    with refused(ConnectionError, f"{blob.url}/blob", "timed out", "0 bytes are kept"):
        get("blob", tmp_path)
    assert len(blob.asked) == download.TRIES


def test_no_server(tmp_path, blob):
    with serving(Shop()) as closed:
        pass
    with refused(ConnectionError, closed.url, "Connection refused"):
        get("blob", tmp_path, base_url=closed.url)


def test_a_file_that_is_not_there(tmp_path, blob):
    blob.files.clear()
    with refused(ConnectionError, f"{blob.url}/blob", "404 Not Found"):
        get("blob", tmp_path)
    assert len(blob.asked) == 1


def test_a_full_disk_keeps_what_arrived(tmp_path, blob):
    with (
        largest_file(600_000),
        pytest.raises(OSError, match=r"has no room for blob: .* What has arrived is kept"),
    ):
        get("blob", tmp_path)
    assert part(tmp_path) == CONTENT[:600_000]
    assert len(blob.asked) == 1
    get("blob", tmp_path)
    assert whole(tmp_path)
    assert blob.asked[-1] == ("/data/blob", "bytes=600000-")


@pytest.mark.parametrize("length", [True, False], ids=["announced", "found out"])
def test_a_file_that_is_too_large(tmp_path, blob, monkeypatch, length):
    monkeypatch.setattr(download, "LARGEST_FILE", len(CONTENT) - 1)
    blob.length = length
    put_part(tmp_path, CONTENT[:300_000])
    with refused(ValueError, f"{blob.url}/blob", f"no more than {len(CONTENT) - 1} bytes", "nothing of it is kept"):
        get("blob", tmp_path)
    assert list((tmp_path / "blob").iterdir()) == []
    monkeypatch.setattr(download, "LARGEST_FILE", len(CONTENT))
    get("blob", tmp_path)
    assert whole(tmp_path)


@pytest.mark.parametrize("address", ["ftp://127.0.0.1:9/blob", "file:///etc/passwd", "FTP://127.0.0.1:9/blob"])
def test_only_http_is_followed(tmp_path, blob, address):
    blob.moved = {"blob": address}
    with refused(ConnectionError, f"{blob.url}/blob", "302", address.lower()):
        get("blob", tmp_path)
    assert len(blob.asked) == 1


def test_another_address_is_followed(tmp_path, blob):
    blob.files["other"] = CONTENT
    blob.moved = {"blob": f"{blob.url}/other"}
    get("blob", tmp_path)
    assert whole(tmp_path)
    assert [path for path, _ in blob.asked] == ["/data/blob", "/data/other"]


# --- Archives ----------------------------------------------------------------------------------------------------


def tar_gz(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def publish_cifar(shop: Shop, monkeypatch: pytest.MonkeyPatch, extra: dict[str, bytes] | None = None) -> None:
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    files = {
        f"cifar-10-batches-py/{name}": python2_pickle("labels", [k, 9], random_bytes(2, 3072, seed=k))
        for k, name in enumerate(names)
    }
    content = tar_gz(files | (extra or {}))
    shop.files["cifar-10-python.tar.gz"] = content
    archive = {"cifar-10-python.tar.gz": md5(content)}
    monkeypatch.setitem(SOURCES, "cifar10", Source(shop.url, "cifar-10-batches-py", archive, {}))


def test_an_archive_is_unpacked_and_can_be_opened(tmp_path, shop, monkeypatch):
    publish_cifar(shop, monkeypatch)
    folder = get("cifar10", tmp_path)
    assert list(tmp_path.iterdir()) == [folder]
    assert open_data("cifar10", root=tmp_path).train.labels.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]


def test_an_unpacked_archive_is_verified_and_not_fetched_again(tmp_path, shop, monkeypatch):
    publish_cifar(shop, monkeypatch)
    folder = get("cifar10", tmp_path)
    get("cifar10", tmp_path)
    assert len(shop.asked) == 1
    (folder / "test_batch").write_bytes(b"damaged")
    with refused(ValueError, folder / "test_batch", "missing or has changed", f"Delete {folder}"):
        get("cifar10", tmp_path)
    (folder / "test_batch").unlink()
    with refused(ValueError, folder / "test_batch", "missing or has changed"):
        get("cifar10", tmp_path)


def test_a_folder_of_ones_own_is_left_alone(tmp_path, shop, monkeypatch):
    publish_cifar(shop, monkeypatch)
    (tmp_path / "cifar-10-batches-py").mkdir()
    assert get("cifar10", tmp_path) == tmp_path / "cifar-10-batches-py"
    assert shop.asked == []


def test_an_archive_that_would_write_elsewhere(tmp_path, shop, monkeypatch):
    publish_cifar(shop, monkeypatch, {"../evil": b"evil"})
    root = tmp_path / "root"
    with refused(ValueError, "cifar-10-python.tar.gz", "must hold only paths below cifar-10-batches-py/", "'../evil'"):
        get("cifar10", root)
    assert [path.name for path in root.iterdir()] == ["cifar-10-python.tar.gz"]
    assert not (tmp_path / "evil").exists()


# --- Names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ingredients"),
    [
        ("digits", ("scikit-learn",)),
        ("webvision-mini", ("data.vision.ee.ethz.ch", "{root}/webvision")),
        ("webvision-mini-imagenet", ("data.vision.ee.ethz.ch", "image-net.org", "{root}/ilsvrc12/val")),
        ("cifar-n", ("https://github.com/UCSC-REAL/cifar-10-100n", "CIFAR-10_human.pt", "into {root}")),
    ],
)
def test_what_must_be_fetched_by_hand(tmp_path, name, ingredients):
    with refused(ValueError, f"{name} cannot be downloaded", *(text.format(root=tmp_path) for text in ingredients)):
        get(name, tmp_path)


def test_an_unknown_name(tmp_path):
    with refused(ValueError, "'cifar11'", "did you mean 'cifar10'?"):
        get("cifar11", tmp_path)


def test_every_source_has_its_checksums():
    sums = [md5 for source in SOURCES.values() for md5 in source.files.values()]
    assert len(set(sums)) == len(sums) == 12
    assert all(len(bytes.fromhex(text)) == 16 for text in sums)
    assert all(source.url.startswith("http") and source.url.endswith("/") for source in SOURCES.values())
    single = [name for name, source in SOURCES.items() if source.folder == name]
    assert single == [name for name, source in SOURCES.items() if len(source.files) > 1] == ["mnist", "fashion-mnist"]
