"""Where the student's word vectors start: the teacher, a vector file, or chance."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.decomposition import PCA
from torch import Tensor

from distillkit.data.vectors import read_vectors
from distillkit.errors import InputError
from distillkit.student.vocabulary import PAD, UNKNOWN

# Words in, one vector each out: how a teacher is asked without the student's code knowing what a teacher is.
VectorsOfWords = Callable[[Sequence[str]], Tensor]

# Standard deviation of the numbers in the table: that of Kim's uniform [-0.25, 0.25] for unknown words.
_SCALE = 0.25 / 3**0.5


def from_teacher(words: Sequence[str], width: int, ask: VectorsOfWords) -> Tensor:
    """Give each word the teacher's vector for it, reduced by PCA.

    Args:
        words: V words in the order of their ids; `[PAD]` and `[UNK]` get zeros, which is the mean word.
        width: Numbers a word wanted, at most the teacher's hidden size and the number of words.
        ask: The teacher's vectors of words, (n, H).

    Returns:
        (V, width) float32, mean 0, standard deviation over all numbers that of uniform [-0.25, 0.25].

    Raises:
        InputError: `width` is too large.
    """
    known = [i for i, word in enumerate(words) if word not in (PAD, UNKNOWN)]
    vectors = ask([words[i] for i in known]).numpy()
    if width > min(vectors.shape):
        raise InputError(
            f"student.embeddings.width is {width}: expected at most {min(vectors.shape)} (the teacher's hidden size, or the vocabulary)"
        )
    # The full decomposition: the randomised one would differ from run to run in its last digits.
    reduced = PCA(width, svd_solver="full").fit_transform(vectors.astype(np.float64))
    table = np.zeros((len(words), width))
    table[known] = reduced * (_SCALE / reduced.std())
    return torch.from_numpy(table).float()


def from_file(words: Sequence[str], width: int, path: Path) -> tuple[Tensor, float]:
    """Read word vectors in GloVe's or word2vec's text form.

    Args:
        words: V words in the order of their ids.
        width: Numbers a word; the file must have as many.
        path: One word and its numbers a line, split at spaces; a first line of two numbers (word2vec's counts) is skipped.

    Returns:
        (V, width) float32, uniform in [-0.25, 0.25] for words that are not in the file (Kim 2014); and the share of words found, 0 to 1.

    Raises:
        InputError: No such file, a line that is no vector, or another width.
    """
    if not path.is_file():
        raise InputError(
            f"student.embeddings.source {str(path)!r}: no such file; expected teacher, random, or a word-vector text file"
        )
    numbers, found = read_vectors(path, words, width, "set --student.embeddings.width to the file's own")
    table = (torch.rand(len(words), width) - 0.5) * 0.5
    table[torch.from_numpy(found)] = torch.from_numpy(numbers[found])
    for i, word in enumerate(words):
        if word in (PAD, UNKNOWN):
            table[i] = 0
    return table, float(found.mean())
