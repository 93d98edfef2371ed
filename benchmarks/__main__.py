"""Benchmarks of the package, each a subcommand.

python -m benchmarks cpu [--suite NAME] [--threads N] [--rounds N] [--json OUT] [--plot OUT.png]
"""

import argparse

from .cpu import command


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    command.parser(parser.add_subparsers(required=True, metavar="WHAT").add_parser)
    args = parser.parse_args(argv)
    args.run(args)


if __name__ == "__main__":
    main()
