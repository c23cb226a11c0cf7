"""Load one form, answer one row, print the memory: `python -m distillkit.bench.cold KIND PATH`."""

import json
import resource
import sys
from pathlib import Path

from distillkit.bench.forms import Form, load


def main() -> None:
    """Answer the row on stdin, [text, second text or null], and print peak memory in MB."""
    kind, path = sys.argv[1:]
    text, pair = json.load(sys.stdin)
    load(Form("", kind, path), 1)([text], None if pair is None else [pair])
    sys.stdout.write(json.dumps({"peak_megabytes": _peak() / 1e6}) + "\n")


def _peak() -> int:
    """Return the most bytes that this process has had resident."""
    status = Path("/proc/self/status")
    if status.is_file():  # Linux counts what the parent had at the fork into ru_maxrss
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main()
