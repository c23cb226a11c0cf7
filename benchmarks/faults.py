"""Hit the commands that write, also under torchrun and on Ray, with faults, and repeat them.

python benchmarks/faults.py --faults 300 --seed 7

Commands and kinds of faults: tests/faults/harness.py. The repeated command must give the bytes of an
undisturbed one, or refuse in one line that names the file.
"""

import argparse
import os
import sys
from pathlib import Path

import pytest


def main() -> int:
    """Run the tests with that many faults; exit with 1 if one leaves something wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ |= {"DISTILLKIT_FAULTS": f"{options.faults}", "DISTILLKIT_SEED": f"{options.seed}"}
    root = Path(__file__).parent.parent
    return pytest.main(["-q", f"--rootdir={root}", f"{root / 'tests' / 'faults'}"])


if __name__ == "__main__":
    sys.exit(main())
