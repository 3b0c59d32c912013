"""Download a data set from its publisher. Files are checked, and an interrupted download is continued."""

from __future__ import annotations

import hashlib
import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, BinaryIO

from symloss.checks import nearest
from symloss.data.archive import extract
from symloss.data.sources import BY_HAND, SOURCES, Remote, by_hand
from symloss.environment import data_root
from symloss.writing import DiskFull, clear_write_errors, disk_is_full

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes received so far, and their final number, if the server tells it."""

TIMEOUT = 60.0
"""Seconds of silence after which a connection is given up."""

LARGEST = 2**30
"""Bytes of a file; the largest that is published has 170 million."""

TRIES = 3
SUMS = "SHA256SUMS"
_BLOCK = 2**18


def get(name: str, root: Path | None = None, *, progress: Progress | None = None, base_url: str | None = None) -> Path:
    """Download a data set and return its folder. Files that are there already are checked.

    A download that was interrupted is continued by the next call.

    Args:
        name: mnist, fashion-mnist, cifar10 or cifar100.
        root: the folder of all data sets; None for :func:`symloss.data.data_root`.
        progress: called with a file's name, the bytes received so far, and their final number or None.
        base_url: the address of a mirror with the same files.

    >>> get("digits")
    Traceback (most recent call last):
    ValueError: digits cannot be fetched from here: it is part of scikit-learn and always there
    """
    root = data_root() if root is None else root
    if name in BY_HAND:
        raise ValueError(f"{name} cannot be fetched from here: {by_hand(name, root)}")
    if name not in SOURCES:
        raise ValueError(f"no data set is called {name!r}; {nearest(name, [*SOURCES, *BY_HAND])}")
    source = SOURCES[name]
    base_url = (base_url or source.url).rstrip("/") + "/"
    folder = root / source.folder
    if source.packed:
        _fetch_archive(base_url, source.files[0], folder, progress)
    else:
        for remote in source.files:
            _fetch(base_url + remote.name, remote, folder / remote.name, progress)
    return folder


def _fetch_archive(base_url: str, remote: Remote, folder: Path, progress: Progress | None) -> None:
    if folder.is_dir():
        _verify_folder(folder)
        return
    archive = folder.parent / remote.name
    _fetch(base_url + remote.name, remote, archive, progress)
    extract(archive, folder, finish=_write_sums)
    archive.unlink()


def _write_sums(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{checksum(path, 'sha256')}  {path.relative_to(folder).as_posix()}\n" for path in files]
    with clear_write_errors(folder / SUMS):
        (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def _verify_folder(folder: Path) -> None:
    """Compare with the checksums that were written when the archive was unpacked. A user's folder has none."""
    sums = folder / SUMS
    for line in sums.read_text(encoding="utf-8").splitlines() if sums.is_file() else []:
        wanted, _, name = line.partition("  ")
        path = folder / name
        if not path.is_file() or checksum(path, "sha256") != wanted:
            raise ValueError(f"{path} must be as it was unpacked; got a changed or missing file: delete {folder} first")


def checksum(path: Path, method: str) -> str:
    """The checksum of a file, in hexadecimal, by a method of ``hashlib``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(method, usedforsecurity=False)).hexdigest()


def _fetch(url: str, remote: Remote, target: Path, progress: Progress | None) -> None:
    if target.is_file() and checksum(target, "md5") == remote.md5:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    _download(url, part, lambda done, total: progress(target.name, done, total) if progress else None)
    found = checksum(part, "md5")
    if found != remote.md5:
        part.unlink()
        raise ValueError(
            f"{url} must have the MD5 {remote.md5}; got {found}: the file was damaged on its way or has changed, "
            "and what had arrived is deleted"
        )
    part.replace(target)


def _download(url: str, part: Path, progress: Callable[[int, int | None], None]) -> None:
    """Download the rest of a partial file. A connection that breaks is tried again."""
    problem = ""
    for _ in range(TRIES):
        try:
            _transfer(url, part, progress)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                return  # nothing is missing
            raise ConnectionError(f"{url} must be there to be fetched; got {error.code} {error.reason}") from error
        except DiskFull:
            raise
        except _FileTooLarge as error:
            part.unlink(missing_ok=True)
            raise ValueError(str(error)) from None
        except (OSError, http.client.HTTPException) as error:
            problem = str(getattr(error, "reason", error)) or type(error).__name__
    have = part.stat().st_size if part.exists() else 0
    raise ConnectionError(
        f"{url} must be within reach; got {problem} ({have} bytes are kept, and the next try continues there)"
    )


class _FileTooLarge(ValueError):  # noqa: N818
    """More than any data set has."""


class _OnlyHttp(urllib.request.HTTPRedirectHandler):
    """Follow redirections as urllib does, but not to FTP."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not newurl.lower().startswith(("http://", "https://")):
            reason = f"a redirect to {newurl!r}, and only http and https are followed"
            raise urllib.error.HTTPError(req.full_url, code, reason, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(url: str, headers: dict[str, str]) -> Any:
    return urllib.request.build_opener(_OnlyHttp).open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)


def _transfer(url: str, part: Path, progress: Callable[[int, int | None], None]) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "symloss", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with _open(url, headers) as answer:
        continued = re.match(rf"bytes {have}-", answer.headers.get("Content-Range", ""))
        if answer.status != http.client.PARTIAL_CONTENT or not continued:
            have = 0  # the server sends the whole file
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if length.isascii() and length.isdecimal() else None
        with part.open("ab", buffering=0) as file:
            file.truncate(have)
            progress(have, total)
            _check_size(url, total or have)
            while block := answer.read(_BLOCK):
                have += len(block)
                _check_size(url, have)
                _write(file, block, part)
                progress(have, total)
    if total is not None and have < total:
        raise ConnectionError(f"a connection that ended after {have} of {total} bytes")


def _check_size(url: str, size: int) -> None:
    if size > LARGEST:
        raise _FileTooLarge(
            f"{url} must have no more than {LARGEST} bytes; got {size} or more, and nothing of it is kept"
        )


def _write(file: BinaryIO, block: bytes, part: Path) -> None:
    view = memoryview(block)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        if disk_is_full(error):
            raise DiskFull(
                f"{part.parent} must have room for {part.name.removesuffix('.part')}; got {error.strerror} "
                "(what has arrived is kept, and the next try continues there)",
            ) from error
        raise
