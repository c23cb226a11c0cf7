"""The one exception that means: the input is wrong, and here is how to mend it."""


class InputError(ValueError):
    """A user's mistake, said in one line: where it is, what was expected, how to mend it.

    The command line prints it without a traceback and exits with status 1; every other exception is a bug and keeps its traceback.
    """
