"""`python -m distillkit` is `distillkit`."""

import sys

from distillkit.cli import main

if __name__ == "__main__":
    sys.exit(main())
