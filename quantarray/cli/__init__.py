"""The command line: `quantarray run`, `info`, `tune`, `compare`, `demo`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from .. import __version__
from . import compare, demo, info, run, tune

# What a user's file or argument can cause. A TypeError is not among them: that would be this library's own mistake.
_USER_ERRORS = (OSError, ValueError, ImportError, MemoryError, OverflowError)


class _Parser(argparse.ArgumentParser):
    """Errors in one line, without the usage; `--help` has that."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 is success, 1 a failed `--check`, 2 an error, said in one line on stderr."""
    parser = _Parser(prog="quantarray", description="Arrays and networks of 1 to 8 bits that stay packed.")
    parser.add_argument("--version", action="version", version=f"quantarray {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="run | info | tune | compare | demo")
    for command in (run, info, tune, compare, demo):
        command.add_parser(commands)
    try:
        args = parser.parse_args(argv)
        status: int = args.command(args)
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    except KeyboardInterrupt:
        return 130
    except _USER_ERRORS as error:
        text = " ".join(str(error).split()) or type(error).__name__
        print(f"quantarray: error: {text}", file=sys.stderr)
        return 2
    return status
