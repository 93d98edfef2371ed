"""Benchmarks of the package, each a subcommand.

python -m benchmarks cpu [--suite NAME] [--threads N] [--rounds N] [--json OUT] [--plot OUT.png]
python -m benchmarks quantizers [--only TEXT] [--small | --large] [--rounds N] [--json OUT]
python -m benchmarks beside [--situation NAME] [--rounds N] [--seconds S] [--json OUT]
python -m benchmarks networks [--only TEXT] [--batch N] [--budget S] [--folder DIR] [--build] [--json OUT]
python -m benchmarks linear [--only TEXT] [--rows N] [--ring] [--model] [--threads N] [--ggml FOLDER] [--json OUT]
python -m benchmarks search [--only TEXT] [--threads N] [--rounds N] [--seconds S] [--json OUT]
python -m benchmarks gpu [--part PART] [--suite NAME] [--only TEXT] [--budget S] [--json OUT]
python -m benchmarks training [--model NAME] [--mode MODE] [--batch N] [--memory MB] [--gradients] [--json OUT]
python -m benchmarks gpu --plan [--seconds S] [--json OUT]
"""

import argparse

from . import quantizers
from .beside import command as beside
from .cpu import command as cpu
from .gpu import command as gpu
from .linear import command as linear
from .networks import command as networks
from .search import command as search
from .training import command as training


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    add = parser.add_subparsers(required=True, metavar="WHAT").add_parser
    cpu.parser(add)
    quantizers.parser(add)
    beside.parser(add)
    networks.parser(add)
    linear.parser(add)
    search.parser(add)
    training.parser(add)
    gpu.parser(add)
    args = parser.parse_args(argv)
    args.run(args)


if __name__ == "__main__":
    main()
