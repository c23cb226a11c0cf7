"""Token ids to word vectors, by a table or by hashed n-grams of bytes; and fast dropout."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from distillkit.student.config import WordConfig

# Byte-level ids, as `vocabulary` lays them out: [PAD], [UNK], then the 256 bytes.
FIRST_BYTE = 2
_SPACES = tuple(FIRST_BYTE + byte for byte in b" \t\n\r\v\f")
# First bytes, in UTF-8, of U+3000 to U+DFFF: Chinese, Japanese and Korean, where no space ends a
# word.
_IDEOGRAPHS = (FIRST_BYTE + 0xE3, FIRST_BYTE + 0xED)
# Lehmer's generator (Park, Miller 1988): products stay below 2 ** 63
_PRIME, _MULTIPLIER = 2**31 - 1, 48_271


class Dropout(nn.Dropout):
    """Dropout that draws its noise five times as fast on a CPU: a 64-bit draw decides on four numbers.

    There the rate is rounded to the nearest 1/65536, and what is kept is scaled by that rate.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Drop numbers of a tensor of any shape while training, scale the others up."""
        dropped = round(self.p * 2**16)  # of 2 ** 16 equally likely draws
        if not self.training or x.device.type != "cpu" or not 0 < dropped < 2**16:
            return super().forward(x)
        noise = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = noise.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15
        return x * kept.to(x.dtype).mul_(2**16 / (2**16 - dropped))


class Embedding(nn.Module):
    """Word vectors of token ids; a subclass looks them up."""

    width: int
    dropout: Dropout

    def look_up(self, input_ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return word vectors without dropout; otherwise as `forward`."""
        raise NotImplementedError

    def forward(self, input_ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Look words up.

        Args:
            input_ids: (B, T) int64, each row's own tokens first; what follows them may be anything.
            lengths: Tokens a row, (B,) int64.

        Returns:
            Word vectors, (T', B, W), time first as LSTM kernels work; and the words a row, (B,)
            int64.
        """
        x, words = self.look_up(input_ids, lengths)
        return self.dropout(x), words


class WordEmbedding(Embedding):
    """A table of word vectors: trainable, frozen, or one of each side by side (Kim 2014)."""

    def __init__(self, config: WordConfig) -> None:
        super().__init__()
        size, width, padding = config.vocab_size, config.embedding_size, config.pad_token_id
        self.frozen_table = self.table = None
        if config.channels != "single":
            self.frozen_table = nn.Embedding(size, width, padding_idx=padding)
            self.frozen_table.weight.requires_grad_(False)
        if config.channels != "frozen":
            self.table = nn.Embedding(size, width, padding_idx=padding)
        self.width = width * (2 if config.channels == "multi" else 1)
        self.dropout = Dropout(config.dropout)

    def look_up(self, input_ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tables' rows, (T, B, W); each token is a word."""
        ids = input_ids.t()
        # Detached as well: from_pretrained gives every parameter its gradient back.
        found = [] if self.frozen_table is None else [self.frozen_table(ids).detach()]
        if self.table is not None:
            found.append(self.table(ids))
        return torch.cat(found, dim=2) if len(found) > 1 else found[0], lengths

    def set_vectors(self, vectors: Tensor) -> None:
        """Start every channel from these vectors, (V, E) float."""
        with torch.no_grad():
            for table in (self.table, self.frozen_table):
                if table is not None:
                    table.weight.copy_(vectors)
                    table.weight[table.padding_idx].zero_()


class HashedEmbedding(Embedding):
    """Word vectors from hashed n-grams of a word's bytes: no word is unknown.

    A word begins after a space, and at each Chinese, Japanese or Korean character. Its vector is
    the mean of the table's rows for the whole word and for its n-grams of 3 to 5 bytes, where the
    byte before it and the byte behind it count as its ends.

    Source: Bojanowski et al. 2017 (arXiv 1607.04606), section 3.2.
    """

    ngrams = (3, 4, 5)

    def __init__(self, config: WordConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.vocab_size, config.embedding_size)
        self.width = config.embedding_size
        self.dropout = Dropout(config.dropout)

    def look_up(self, input_ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Hash words: of byte ids (B, T) their vectors, (T', B, W), and the words a row, (B,)."""
        rows, words, count = self._rows(input_ids, lengths)
        size = input_ids.shape[0]
        # A graph that is exported cannot ask how many words there are: no more than bytes.
        steps = input_ids.shape[1] if torch.compiler.is_exporting() else max(int(count.max()), 1)
        # The word's place in (T', B), time first; what belongs to no word goes to a place behind
        # the last, which is cut off.
        text = torch.arange(size, device=words.device)[:, None, None]
        place = torch.where(words < 0, steps * size, words * size + text).flatten()
        vectors = self.table(rows).flatten(0, 2)  # (B * T * (G + 1), E)
        total = vectors.new_zeros(steps * size + 1, self.width).index_add(0, place, vectors)
        parts = vectors.new_zeros(steps * size + 1).index_add(
            0, place, torch.ones_like(vectors[:, 0])
        )
        return (total / parts.clamp(min=1)[:, None])[:-1].view(steps, size, self.width), count

    def _rows(self, input_ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Hash, for each byte, its word as far as that byte and the n-grams about it.

        Returns:
            Rows of the table, (B, T, G + 1) int64; the number, within the text, of the word that
            each is a part of, -1 for none; words a text, (B,).
        """
        place = torch.arange(input_ids.shape[1], device=input_ids.device)
        letter = place < lengths[:, None]
        for space in _SPACES:
            letter = letter & (input_ids != space)
        ids = input_ids.where(letter, _SPACES[0])
        first = letter & (~_shifted(letter, -1) | (ids >= _IDEOGRAPHS[0]) & (ids <= _IDEOGRAPHS[1]))
        word = first.long().cumsum(1) - 1
        # Where each byte's word begins: summed up at the word's number, for ONNX knows no running
        # maximum.
        begins = torch.zeros_like(word).scatter_add(1, word.clamp(min=0), place.where(first, 0))
        start = begins.gather(1, word.clamp(min=0))
        # The whole word is a sum over its bytes, each mixed with its place, taken at its last byte.
        mixed = ((ids * 1_009 + (place - start) * 7_919) * _MULTIPLIER % _PRIME).where(letter, 0)
        sums = mixed.cumsum(1)
        rows = [self._row(sums - (sums - mixed).gather(1, start))]
        words = [word.where(letter & ~_shifted(letter & ~first, 1), -1)]
        for n in self.ngrams:
            value, inside = torch.zeros_like(ids), letter
            # from the byte before to the one behind n - 2 bytes of the word
            for offset in range(-1, n - 1):
                value = (value * 257 + _shifted(ids, offset, _SPACES[0])) % _PRIME
            for offset in range(1, n - 2):
                inside = inside & _shifted(letter & ~first, offset)
            rows.append(self._row(value + n))
            words.append(word.where(inside, -1))
        return torch.stack(rows, 2), torch.stack(words, 2), first.sum(1)

    def _row(self, value: Tensor) -> Tensor:
        return value % _PRIME * _MULTIPLIER % _PRIME % self.table.num_embeddings


def _shifted(x: Tensor, by: int, fill: int = 0) -> Tensor:
    """Return, at each place of (B, T), the value `by` places on; `fill` beyond the ends."""
    steps = x.shape[1]
    return pad(x, (max(-by, 0), max(by, 0)), value=fill)[:, max(by, 0) :][:, :steps]
