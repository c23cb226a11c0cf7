"""Section `data`: where the labelled text is."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from distillkit.errors import InputError
from distillkit.recipe.bounds import CountOrZero, Range, check
from distillkit.recipe.places import File, Source, Texts

AUTO_RAW = "auto"  # what `data.unlabelled` is where nobody says it
AUTO_RAW_ROWS = 30_000

Task = Literal["classification", "multi-label", "regression"]
Missing = Literal["refuse", "drop"]
# What a task's dev score is called: in summaries (`dev_accuracy`), and what `run` prints of every
# model.
SCORES: dict[Task, str] = {
    "classification": "accuracy",
    "multi-label": "micro_f1",
    "regression": "pearson",
}


@dataclass(frozen=True)
class ColumnsConfig:
    """What a source calls its columns."""

    text: str = "text"
    """Name of the column with the (first) text."""
    text_pair: str = ""
    """Name of the column with the second text; empty: single texts."""
    label: str = "label"
    """Name of the column with the label: names or integers; lists of them (multi-label); numbers
    (regression)."""
    label_separator: str = ","
    """Multi-label: splits the labels of a row that are one text; white space around a label is
    dropped."""

    def __post_init__(self) -> None:
        if self.label in (self.text, self.text_pair):
            raise InputError(
                f"data.columns.label is {self.label!r}, a column of text; expected the column of the labels"
            )
        if self.text == self.text_pair:
            raise InputError(
                f"data.columns.text and text_pair are both {self.text!r}: expected two columns"
            )
        if not self.label_separator:
            raise InputError(
                "data.columns.label_separator is empty: expected what splits a row's labels, as in a,b"
            )


@dataclass(frozen=True)
class DataConfig:
    """Where the labelled text is."""

    task: Task = "classification"
    """classification: one class a text; multi-label: any number of labels, none included;
    regression: a number (ordinal tasks too)."""
    train: Source = ""
    """Labelled training data: a .tsv, .csv, .jsonl or .parquet file, `embedded:NAME/SPLIT`, or
    `datasets:NAME[:CONFIG]:SPLIT` (a hub name or a folder)."""
    dev: Source = ""
    """Labelled development data, same forms; empty: `dev_fraction` of train is set aside, label by
    label in classification."""
    test: Source = ""
    """Labelled test data, same forms; empty: the report has dev only."""
    unlabelled: Texts = ()
    """More text for the transfer set, labelled by the teacher alone: same forms, .txt with one text
    a line, or `wordnet` (NLTK's corpus, or `wordnet:FOLDER`): its glosses and examples. auto: 30,000
    of WordNet's where it is installed and the task is of single English texts, else none."""
    labels: tuple[str, ...] = ()
    """Names of the classes, in place of `train`: `label.zero_shot` or `label.endpoint` labels the
    first unlabelled texts."""
    unlabelled_rows: CountOrZero = 0
    """How many unlabelled texts to take, at random; texts longer than any training text are cut into
    sentences first. 0: all, uncut."""
    dev_fraction: Annotated[float, Range(0, 0.5)] = 0.1
    """Share of train set aside when `dev` is empty, 0 to 0.5."""
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    """What the sources call their columns."""
    logits: File = ""
    """Logits from elsewhere in place of the teacher's: a .parquet or .jsonl file with a text and
    `logits`, C numbers, a row. Its texts are the transfer set, without variants. The teacher gives
    word vectors, and is measured beside."""
    logit_labels: tuple[str, ...] = ()
    """Labels of the logits in the file of `data.logits`, in their order; empty: those of train,
    sorted."""
    missing: Missing = "refuse"
    """What becomes of rows without a text or a label: refuse lists them, drop leaves them out."""
    corrections: File = ""
    """Labels of train and dev that were looked at: a file that `distillkit doctor --labels` wrote,
    its column `correction` filled in. A row of it that is not in the data is refused."""

    def settings(self) -> dict[str, Any]:
        """Return what the tables depend on, by field."""
        kept = asdict(self)
        del kept["logits"], kept["logit_labels"]
        # As in runs that did not know these fields.
        if self.missing == "refuse":
            del kept["missing"]
        if not self.labels:
            del kept["labels"]
        if not self.corrections:
            del kept["corrections"]
        return kept

    def __post_init__(self) -> None:
        check(self, "data")
        if AUTO_RAW in self.unlabelled and len(self.unlabelled) > 1:
            raise InputError(
                f"data.unlabelled is {', '.join(self.unlabelled)}: expected {AUTO_RAW} alone, or without it"
            )
        if self.logits and self.unlabelled not in ((), (AUTO_RAW,)):
            raise InputError(
                "data.logits has its own texts: add those of data.unlabelled there, with their logits"
            )
        if self.labels:
            self._check_labels()
        if self.corrections and self.task != "classification":
            raise InputError(
                f"data.corrections corrects the labels of a classification, but data.task is {self.task}; leave it out"
            )
        if self.unlabelled_rows and not self.unlabelled:
            raise InputError(
                f"data.unlabelled_rows is {self.unlabelled_rows}, but data.unlabelled is empty: name raw text, wordnet for one"
            )

    def _check_labels(self) -> None:
        """Refuse names of classes without texts to label, or beside labelled ones."""
        said = f"data.labels is {', '.join(self.labels)}"
        if len(set(self.labels)) < max(len(self.labels), 2):
            raise InputError(f"{said}: expected two or more different names")
        if self.task != "classification":
            raise InputError(f"{said}, but data.task is {self.task}: expected classification")
        if self.train:
            raise InputError(
                f"{said}, but data.train has labels of its own: leave one of the two out; rows with labels are data.dev"
            )
        if self.unlabelled in ((), (AUTO_RAW,)) or self.logits:
            raise InputError(f"{said}: name the texts to label with data.unlabelled, and no logits")
