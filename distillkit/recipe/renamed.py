"""Old names that users have typed or saved, and today's names of the same things.

Each table holds a name for one release after its change. An old name works as the new one does, and
one line on stderr says the new one. Old names of shelf files are in `shelf.RENAMED`.
"""

from distillkit.errors import InputError, say_renamed

# Recipe keys, in YAML and as flags: dotted path -> dotted path; only the last part may differ. An
# entry counts wherever a path ends with it: "training.origins" also renames
# teacher.training.origins. A section is one key. Fields of students/*.yaml and teachers/*.yaml
# begin with "student." and "teacher.". Where a section is renamed too, write its new name on both
# sides.
KEYS: dict[str, str] = {
    "proof": "evaluation",
    "training.origins": "training.sampling_weights",
    "student.vocabulary.pieces": "student.vocabulary.subwords",
    "student.embeddings.width": "student.embeddings.dimension",
}

# Flags of one command that are no recipe keys, as paths without the dashes.
FLAGS: dict[str, dict[str, str]] = {
    "cascade": {"share": "deferral_rate"},
    "ladder": {"rungs": "ablations"},
    "tune": {
        "search.knobs": "search.hyperparameters",
        "search.width": "search.embedding_dimension",
        "search.origins": "search.sampling_weights",
    },
}

# Recipe keys that are gone, and the value with which each did nothing; WHATEVER of a section that
# another key switched on. An entry counts wherever a path ends with it or, of a section, goes on.
WHATEVER = "*"
REMOVED = {
    "adapt.masking.final_rate": "0.0",
    "adapt.masking.guide": "",
    "adapt.masking.static_copies": "0",
    "adapt.masking.span_p": "0.2",
    "adapt.masking.max_span": "10",
    "augment.mix.infill": "0.0",
    "augment.infill": WHATEVER,
    "compress.heads": "0.0",
    "compress.sparsity": "0.0",
    "compress.criterion": "magnitude",
    "compress.scope": "global",
    "compress.rounds": "1",
    "loss.alpha_end": "-1.0",
    "loss.temperature_end": "0.0",
    "loss.label_smoothing": "0.0",
    "loss.hidden": "0.0",
    "loss.attention": "0.0",
    "loss.teacher_weighting": "given",
    "training.ema_decay": "0.0",
    "training.loader.prefetch": "4",
    "training.loader.pin_memory": "auto",
    "training.loader.persistent": "true",
    "training.loader.workers": "-1",
    "student.word_dropout": "0.0",
    "student.vocabulary.mask": "unknown",
    "student.embeddings.weighting": "none",
    "student.embeddings.context_texts": "20000",
}


def removed(path: str) -> str | None:
    """Return the value with which a key that is gone did nothing; None: there was no such key."""
    return next((same for old, same in REMOVED.items() if f".{old}." in f".{path}."), None)


def did_nothing(path: str, value: object) -> bool:
    """Say whether a saved recipe or training may have this key, as it is gone and did nothing."""
    # YAML has true, a training's own file True
    return removed(path) in (WHATEVER, str(value).lower())


def new_key(path: str) -> str | None:
    """Return the last part of a recipe key's new name, or None if the key was not renamed."""
    for old, new in KEYS.items():
        if f".{path}".endswith(f".{old}"):
            return new.rpartition(".")[2]
    return None


def rename_flags(command: str, argv: list[str]) -> list[str]:
    """Return a command's arguments with today's flag in place of each old one.

    Raises:
        InputError: A flag is given by its old and by its new name.
    """
    given = {_path(word) for word in argv if word.startswith("--")}
    return [_rename_flag(command, word, given) if word.startswith("--") else word for word in argv]


def _path(word: str) -> str:
    return word[2:].partition("=")[0].replace("-", "_")


def _rename_flag(command: str, word: str, given: set[str]) -> str:
    old = _path(word)
    new = FLAGS.get(command, {}).get(old) or _new_path(old)
    if new == old:
        return word
    if new in given:
        raise InputError(
            f"--{_flag(new)} is given twice, once by its old name --{_flag(old)}; keep the new one"
        )
    say_renamed("", f"--{_flag(old)}", f"--{_flag(new)}")
    _, equals, value = word.partition("=")
    return f"--{_flag(new)}{equals}{value}"


def _new_path(old: str) -> str:
    """Rename a dotted path part by part; a switch is turned off by no_ before its last part."""
    new: list[str] = []
    for part in old.split("."):
        no = "no_" if part.startswith("no_") else ""
        name = new_key(".".join([*new, part.removeprefix(no)]))
        new.append(no + name if name else part)
    return ".".join(new)


def _flag(path: str) -> str:
    return path.replace("_", "-")
