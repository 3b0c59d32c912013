"""``symloss`` and ``python -m symloss``."""

from __future__ import annotations

import sys

from symloss import extras


def main() -> None:
    """Run the command line, or say which extra it needs."""
    try:
        with extras.needed_by("The command line"):
            from symloss.cli import main as run  # noqa: PLC0415  (not installed everywhere)
    except extras.MissingExtraError as error:
        sys.exit(f"symloss: {error}")
    run()


if __name__ == "__main__":
    main()
