"""Storages of studies: a SQLite file, a database server, Redis, or a journal on a shared disk."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, unquote_plus

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
    """Open a storage of Optuna. The URL is one of SQLAlchemy, ``redis://...``, or ``journal:FILE``."""
    try:
        if url.startswith("redis"):
            return JournalStorage(JournalRedisBackend(url))
        if url.startswith(JOURNAL):
            return JournalStorage(JournalFileBackend(url.removeprefix(JOURNAL)))
        parsed = sqlalchemy.make_url(url)
        if parsed.get_backend_name() != "sqlite":
            return RDBStorage(url)
        if parsed.database not in (None, "", ":memory:"):
            return RDBStorage(url, engine_kwargs={"connect_args": {"timeout": PATIENCE}})
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, OSError, RuntimeError, ValueError) as error:
        # The error may hold a part of a password that was read as a port.
        reason = "it cannot be read" if isinstance(error, ValueError) else _reason(error, url)
        raise ValueError(
            f"--storage must be a URL that can be opened, such as sqlite:///FILE, postgresql://USER@HOST/NAME, "
            f"redis://HOST or {JOURNAL}FILE; got {without_password(url)!r} ({reason})"
        ) from None
    raise ValueError(
        f"--storage must outlive the process, so a SQLite URL must name a file; got {without_password(url)!r}"
    )


@contextlib.contextmanager
def readable_storage_errors(url: str) -> Iterator[None]:
    """Raise errors of a storage as one sentence."""
    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError) as error:
        raise OSError(
            f"the storage {without_password(url)} failed ({_reason(error, url)}); what is finished is kept, and the "
            "same command goes on"
        ) from None


_SECRET_OPTION = re.compile(r"([?&;][^?&;=]*(?:pass|pwd|secret|token|key)[^?&;=]*=)([^&;\s]*)", re.IGNORECASE)


def without_password(url: str) -> str:
    """A URL with its passwords replaced, so that it may be printed.

    >>> without_password("postgresql://me:secret@host/studies?sslpassword=secret")
    'postgresql://me:***@host/studies?sslpassword=***'
    """
    before, password, behind = _around_password(_SECRET_OPTION.sub(r"\1***", url))
    return f"{before}:***{behind}" if password else before + behind


def _around_password(url: str) -> tuple[str, str, str]:
    """Scheme and user, the password, and the rest. A password may hold any character; "//" may be missing."""
    start = url.find("://") + 3 if "://" in url else 0
    scheme, rest = url[:start], url[start:]
    before, at, behind = rest.rpartition("@")
    user, _, password = before.partition(":")
    return scheme + user, password, at + behind


def _reason(error: BaseException, url: str) -> str:
    """The first line of the database's message, or of the error. Passwords of the URL are replaced."""
    source = getattr(error, "orig", None) or error.__cause__ or error
    line = next(iter(str(source).strip().splitlines()), type(error).__name__).rstrip(".")
    secrets = [_around_password(url)[1], *(match[2] for match in _SECRET_OPTION.finditer(url))]
    forms = {form for secret in secrets for form in (secret, unquote(secret), unquote_plus(secret)) if form}
    for form in sorted(forms, key=len, reverse=True):
        line = line.replace(form, "***")
    return line
