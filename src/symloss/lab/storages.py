"""Where studies are kept: a SQLite file, a database server, Redis, or a journal on a disk that machines share."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalRedisBackend

JOURNAL = "journal:"
PATIENCE = 60
"""Seconds to wait for another process that writes to the same SQLite file."""


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file, whatever characters its path holds.

    >>> sqlite_url(Path("runs/100 %/tune.db"))
    'sqlite:///runs/100 %25/tune.db'
    """
    return sqlalchemy.URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)


def open_storage(url: str) -> BaseStorage:
    """A storage of Optuna's: any URL of SQLAlchemy's, ``redis://...``, or ``journal:FILE``."""
    try:
        if url.startswith("redis"):
            return JournalStorage(JournalRedisBackend(url))
        if url.startswith(JOURNAL):
            return JournalStorage(JournalFileBackend(url.removeprefix(JOURNAL)))
        return _database(url)
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, OSError, RuntimeError) as error:
        raise ValueError(
            f"--storage must be a URL that can be opened, such as sqlite:///FILE, postgresql://USER@HOST/NAME, "
            f"redis://HOST or {JOURNAL}FILE; got {without_password(url)!r} ({_reason(error)})"
        ) from None


def _database(url: str) -> BaseStorage:
    parsed = sqlalchemy.make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return RDBStorage(url)
    if parsed.database in (None, "", ":memory:"):
        raise ValueError(f"--storage must outlive the process, so a SQLite URL must name a file; got {url!r}")
    return RDBStorage(url, engine_kwargs={"connect_args": {"timeout": PATIENCE}})


@contextlib.contextmanager
def storage_trouble_said(url: str) -> Iterator[None]:
    """A storage that fails in the middle of a search, as one sentence."""
    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError) as error:
        raise OSError(
            f"the storage {without_password(url)} failed ({_reason(error)}); what is finished is kept, and the same "
            "command goes on"
        ) from None


def without_password(url: str) -> str:
    """A URL as it may be shown.

    >>> without_password("postgresql://me:secret@host/studies")
    'postgresql://me:***@host/studies'
    """
    return re.sub(r"(://[^/@:]*):.*@", r"\1:***@", url)


def _reason(error: BaseException) -> str:
    """The first line, of what the database itself said if it did."""
    said = getattr(error, "orig", None) or error.__cause__ or error
    lines = str(said).strip().splitlines()
    return without_password(lines[0].rstrip(".")) if lines else type(error).__name__
