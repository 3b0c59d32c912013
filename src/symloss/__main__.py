"""``symloss`` and ``python -m symloss``."""

from __future__ import annotations

import sys

from symloss import extras


def main() -> None:
    """Run the command line, or say which extra it needs."""
    try:
        from symloss.cli import main as run  # noqa: PLC0415  (not installed everywhere)
    except ModuleNotFoundError as error:
        if not extras.is_optional(error):
            raise
        sys.exit(f"symloss: {extras.missing('The command line', str(error.name))}")
    run()


if __name__ == "__main__":
    main()
