"""The command line: `quantarray run`, `info`, `profile`, `convert`, `compare`, `search`, `demo`, `warm`."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from .. import __version__
from ..core.errors import DeviceError
from . import compare, convert, demo, info, output, profile, run, search, warm

_COMMANDS = "run | info | profile | convert | compare | search | demo | warm"
# What a user's file or argument can cause. A TypeError is not among them: that would be this library's own mistake.
_USER_ERRORS = (OSError, ValueError, ImportError, MemoryError, OverflowError, DeviceError)


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line; the usage is left to `--help`."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write help and version. argparse's own would keep quiet where that fails."""
        (file or sys.stdout).write(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 is success, 1 a failed `--check`, 2 an error, said in one line on stderr.

    130 is an interrupt. 141 is a pipe whose reader went away, as by `| head -1`: nothing is said, as of programs that
    SIGPIPE ends, whose status in a shell is this one.
    """
    try:
        if sys.stdout is None:  # as Python starts with it closed, and then prints nowhere without an error
            raise OSError("stdout is closed: there is nowhere to write to")
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: names of files may have any characters
        status = _status(argv)
        sys.stdout.flush()  # a disk that is full fails here, and can be said
    except BrokenPipeError:
        output.finish()
        return 141
    except KeyboardInterrupt:
        return 130
    except _USER_ERRORS as error:
        output.say(f"quantarray: error: {' '.join(str(error).split()) or type(error).__name__}")
        output.finish()
        return 2
    return status


def _status(argv: Sequence[str] | None) -> int:
    parser = _Parser(prog="quantarray", description="Arrays and networks of 1 to 8 bits that stay packed.")
    parser.add_argument("--version", action="version", version=f"quantarray {__version__}")
    commands = parser.add_subparsers(title="commands", metavar=_COMMANDS)
    for command in (run, info, profile, convert, compare, search, demo, warm):
        command.add_parser(commands)
    try:
        args = parser.parse_args(argv)
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    if not hasattr(args, "command"):  # `quantarray` alone
        parser.print_help()
        return 0
    status: int = args.command(args)
    return status
