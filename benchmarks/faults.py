"""Hit the commands that write, also under torchrun and on Ray, with faults, and repeat them.

python benchmarks/faults.py --faults 300 --seed 7

Commands and kinds of faults: tests/faults/harness.py. The repeated command must give the bytes of an
undisturbed one, or refuse in one line that names the file. runs/faults.json counts both by command, as a
file for benchmarks/results/.
"""

import argparse
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from tables import keyed, save_results

from distillkit.measure.report import table


class Tally:
    """Count what pytest reports of faults, by command."""

    def __init__(self) -> None:
        self.tried: Counter[str] = Counter()
        self.survived: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one fault."""
        if report.when == "call" and (found := re.search(r"\[(.+), .+, \d+\]$", report.nodeid)):
            self.tried[found[1]] += 1
            self.survived[found[1]] += report.passed

    def rows(self) -> list[list[str]]:
        """Return the table: a row a command, and their sum."""
        rows = [[name, f"{count}", f"{self.survived[name]}"] for name, count in self.tried.items()]
        total = ["all", f"{self.tried.total()}", f"{self.survived.total()}"]
        return [["command", "faults", "survived"], *rows, total]


def main() -> int:
    """Run the tests with that many faults; exit with 1 if one leaves something wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ |= {"DISTILLKIT_FAULTS": f"{options.faults}", "DISTILLKIT_SEED": f"{options.seed}"}
    root = Path(__file__).parent.parent
    tally = Tally()
    status = pytest.main(["-q", f"--rootdir={root}", f"{root / 'tests' / 'faults'}"], [tally])
    print(table(tally.rows()))
    save_results("faults", "faults survived, by command", [options.seed], keyed(tally.rows()))
    return status


if __name__ == "__main__":
    sys.exit(main())
