"""`Predictor`: a bundle's answers."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from distillkit.errors import InputError, library_errors
from distillkit.runtime.answers import (
    answered,
    answers,
    check_finite,
    confidence,
    floor_of,
    own_scores,
)
from distillkit.runtime.bundle import ENCODER, HEAD, MANIFEST, MODEL, TOKENIZER, read_bundle
from distillkit.runtime.explain import explain
from distillkit.runtime.tokens import Rows, Texts, listed, padded

# Tokens of one call of the graph, with padding; more cost memory and save no time.
_TOKENS_AT_ONCE = 4096


class Predictor:
    """Answers of a bundle that `distillkit export` wrote; several threads may share one object.

    Args:
        bundle: Folder, or one file.
        threads: Of each call; 0: one a core. Many small calls at once are fastest with 1 each.
        teacher: A predictor of the same labels, asked where this one is not confident; the bundle
            needs a threshold of `distillkit cascade`.

    Raises:
        InputError: The bundle is not whole, not what its manifest says, or gives no answer.
    """

    def __init__(
        self, bundle: str | Path, *, threads: int = 1, teacher: "Predictor | None" = None
    ) -> None:
        self.manifest, files = read_bundle(Path(bundle))
        self._place = str(bundle)
        self._teacher = teacher
        if teacher is not None:
            if self.manifest.cascade is None:
                raise InputError(
                    f"{bundle}: no threshold says when to ask a teacher; distillkit cascade finds one"
                )
            if teacher.task != self.task:
                raise InputError(
                    f"{bundle}: its task is {self.task}, the teacher's {teacher.task}; give its own teacher"
                )
            if {self.manifest.pairs, teacher.manifest.pairs} == {True, False}:
                raise InputError(
                    f"{bundle}: one of it and the teacher answers pairs, the other single texts; give its own teacher"
                )
            if set(teacher.labels) != set(self.manifest.labels):
                raise InputError(
                    f"{bundle}: its labels ({', '.join(self.manifest.labels)}) are not the teacher's ({', '.join(teacher.labels)}); give its own teacher"
                )
        self._siamese = bool(self.manifest.pairs) and MODEL not in files
        graphs = (ENCODER, HEAD) if self._siamese else (MODEL,)
        for name in (TOKENIZER, *graphs):
            if name not in files:
                raise InputError(f"{bundle}: its manifest lists no {name}; export again")
        self._texts = Texts(
            files[TOKENIZER], self.manifest.max_tokens, f"{self._place}/{TOKENIZER}"
        )
        self._sessions = [self._session(name, files[name], threads) for name in graphs]
        if (width := self._width(-1)) != len(self.manifest.labels):
            raise InputError(
                f"{bundle}: {MANIFEST} has {len(self.manifest.labels)} labels, and {graphs[-1]} answers {width}; export again"
            )
        with library_errors(self._place, "expected graphs with names in UTF-8", "; export again"):
            self._inputs = [node.name for node in self._sessions[0].get_inputs()]
            self._outputs = [[session.get_outputs()[0].name] for session in self._sessions]
        # A student of single texts, which takes a row as it is.
        self._own_words = "lengths" in self._inputs and not self.manifest.pairs
        # A graph of other inputs, or a tokenizer of other ids, fails here and not at a request.
        self._logits(self._texts.rows(["a", ""], ["a", ""] if self.manifest.pairs else None))

    @property
    def labels(self) -> list[str]:
        """C names, in the order of the logits."""
        return self.manifest.labels

    @property
    def task(self) -> str:
        """What the logits are for: classification, multi-label or regression."""
        return self.manifest.task

    def logits(self, texts: Sequence[str], text_pairs: Sequence[str] | None = None) -> np.ndarray:
        """Return the logits, (N, C) float32, of N texts, or of pairs with N second texts.

        Raises:
            InputError: Something given is no list of texts, or there are not as many second texts;
                the model answers single texts and pairs are given, or the other way round; a logit
                is NaN or infinite.
        """
        if self.manifest.pairs is not None and self.manifest.pairs != (text_pairs is not None):
            wanted = "single texts: give no second ones"
            wanted = "pairs: give second texts too" if self.manifest.pairs else wanted
            raise InputError(
                f"{self._place}: this model answers {wanted} (of a file: --data.columns.text-pair)"
            )
        texts, text_pairs = listed(texts, text_pairs)
        logits = self._logits(self._texts.rows(texts, text_pairs))
        check_finite(self._place, logits, texts)
        return logits

    def check(self, *, reject: bool = False, coverage: float = 0.0) -> None:
        """Refuse options of `predict` that this bundle has not what it takes for.

        Raises:
            InputError: The bundle has no rejection rule; or no label sets, or none of that
                coverage; or a teacher is asked as well, for whose answers no set was fitted.
        """
        if reject and self.manifest.rejection is None:
            raise InputError(
                f"{self._place}: no rejection rule: its manifest has no rejection; distillkit run fits one where dev has 99 rows or more"
            )
        if coverage:
            floor_of(self.manifest.coverage, coverage, self._place)
            if self._teacher is not None:
                raise InputError(
                    "coverage: the sets are of the student's answers; leave teacher out"
                )

    def predict(
        self,
        texts: Sequence[str],
        text_pairs: Sequence[str] | None = None,
        *,
        reject: bool = False,
        coverage: float = 0.0,
    ) -> list[dict[str, Any]]:
        """Answer N texts or pairs.

        Args:
            texts: N texts.
            text_pairs: N second texts, for pairs.
            reject: Also say whether a text is unlike the training text. The answer (`label`,
                `labels`, `score`) of such a text is None, so that nobody takes it for one.
            coverage: Also give `labels`, a set that holds the right label of so large a share of
                rows like those of dev, 0 to 1; 0: no set.

        Returns:
            The answers, as `runtime.answers.answers` has them; with a teacher also `by`: student or
            teacher; with `reject` also `rejected`.

        Raises:
            InputError: As `logits` and `check` raise it.

        Source: of the sets Angelopoulos & Bates 2021 (arXiv 2107.07511), section 1.
        """
        self.check(reject=reject, coverage=coverage)
        texts, text_pairs = listed(texts, text_pairs)
        found = self._answers(texts, text_pairs)
        if coverage:
            floor = floor_of(self.manifest.coverage, coverage, self._place)
            for answer in found:
                shares = answer["probabilities"].items()
                answer["labels"] = [
                    name for name, share in shares if share >= floor or name == answer["label"]
                ]
        if reject and (rule := self.manifest.rejection) is not None:
            refused = own_scores(self.words(texts, text_pairs), rule) < rule["threshold"]
            for answer, no in zip(found, refused.tolist(), strict=True):
                answer["rejected"] = no
                if no:
                    answer.update(dict.fromkeys(answer.keys() & {"label", "labels", "score"}))
        return found

    def words(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[list[str]]:
        """Return the words of N texts, or of pairs, as the tokenizer splits and lower-cases them."""
        found = [self._texts.words(text) for text in texts]
        if text_pairs is None:
            return found
        seconds = (self._texts.words(text) for text in text_pairs)
        return [first + second for first, second in zip(found, seconds, strict=True)]

    def _answers(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None
    ) -> list[dict[str, Any]]:
        logits = self.logits(texts, text_pairs)
        if self._teacher is None or self.manifest.cascade is None:
            return list(answers(self.task, logits / self.manifest.temperature, self.labels))
        rule = self.manifest.cascade
        asked = np.flatnonzero(confidence(logits, rule["temperature"]) < rule["threshold"])
        logits = logits / rule["temperature"]
        if len(asked):
            order = [self._teacher.labels.index(name) for name in self.labels]
            rows = asked.tolist()
            seconds = None if text_pairs is None else [text_pairs[i] for i in rows]
            theirs = self._teacher.logits([texts[i] for i in rows], seconds)[:, order]
            logits[asked] = theirs / self._teacher.manifest.temperature
        by = np.full(len(logits), "student", object)
        by[asked] = "teacher"
        found = answers(self.task, logits, self.labels)
        return [answer | {"by": who} for answer, who in zip(found, by, strict=True)]

    def explain(
        self,
        texts: Sequence[str],
        text_pairs: Sequence[str] | None = None,
        *,
        reject: bool = False,
        coverage: float = 0.0,
    ) -> list[dict[str, Any]]:
        """Return the answers of `predict`, with each word's share; see `runtime.explain`.

        Raises:
            InputError: As `predict`; or there is a teacher, which may have given the answer.
        """
        if self._teacher is not None:
            raise InputError(
                f"{self._place}: the words explain the student's answers; leave the teacher out"
            )
        texts, text_pairs = listed(texts, text_pairs)
        found = self.predict(texts, text_pairs, reject=reject, coverage=coverage)
        why = explain(self.logits, self.task, self.labels, texts, text_pairs)
        return [answer | words for answer, words in zip(found, why, strict=True)]

    def stream(
        self,
        rows: Iterable[tuple[str, str | None]],
        batch_rows: int = 64,
        *,
        reject: bool = False,
        coverage: float = 0.0,
        explained: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Answer texts or pairs as they come.

        Args:
            rows: (text, None) or (text, second text).
            batch_rows: Rows a call; 1 answers each row at once.
            reject: As in `predict`.
            coverage: As in `predict`.
            explained: Answer as `explain` does.

        Yields:
            For each row, in order, `text`, `text_pair` (pairs only) and the answer.
        """
        ask = partial(self.explain if explained else self.predict, reject=reject, coverage=coverage)
        return answered(rows, batch_rows, ask)

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vector of each text, (N, D) float32; only of a siamese model."""
        if not self._siamese:
            raise InputError(
                f"{self._place}: only a siamese model has vectors of single texts; expected a student of a siamese-... kind"
            )
        rows = self._texts.rows(listed(texts)[0])
        return self._in_parts(
            rows.ids, lambda part: self._words([rows.ids[i] for i in part]), self._width(0)
        )

    def compare(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the logits, (N, C) float32, of pairs of a siamese model's vectors, (N, D) each."""
        if not self._siamese:
            raise InputError(
                f"{self._place}: only a siamese model compares vectors; expected a student of a siamese-... kind"
            )
        first, second = (np.asarray(side, np.float32) for side in (first, second))
        if first.ndim != 2 or first.shape != second.shape:
            raise InputError(
                f"compare: vectors of shape {first.shape} and {second.shape}; expected (N, D) of both"
            )
        return self._run(1, {"first": first, "second": second})

    def _session(self, name: str, data: bytes, threads: int) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Waiting threads leave the core to others.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # Its other format, too, may have weights outside of the file.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        options.log_severity_level = 4  # what fails is said in a line of ours
        # Weights outside of a graph have the key "location", after its length (8; padded, a last byte 0).
        if b"location" in data and re.search(rb"[\x00\x08]location", data):
            raise InputError(
                f"{self._place}/{name}: it reads weights from another file (external data); expected all in one; export again"
            )
        with library_errors(
            f"{self._place}/{name}",
            f"expected a graph that ONNX Runtime {ort.__version__} loads",
            "; export again",
        ):
            session = ort.InferenceSession(
                data,
                options,
                providers=["CPUExecutionProvider"],
                enable_fallback=0,  # it prints on stdout, and tries the same again
            )
            answer = session.get_outputs()[0]
            if answer.type != "tensor(float)" or not isinstance(answer.shape[1], int):
                raise InputError(
                    f"{self._place}/{name}: answers {answer.type} of shape {answer.shape}; expected tensor(float), rows by a fixed number; export again"
                )
        return session

    def _run(self, graph: int, feed: Mapping[str, np.ndarray]) -> np.ndarray:
        try:  # costs a row nothing, as a context would
            return self._sessions[graph].run(self._outputs[graph], feed)[0]
        except Exception:
            with library_errors(
                self._place, "expected graphs that fit its tokenizer", "; export again"
            ):
                raise

    def _width(self, graph: int) -> int:
        return int(self._sessions[graph].get_outputs()[0].shape[1])

    def _logits(self, rows: Rows) -> np.ndarray:
        if len(rows.ids) == 1 and self._own_words:
            return self._of_shape((1, len(self.labels)), self._words(rows.ids))
        return self._in_parts(rows.ids, lambda part: self._part(rows, part), len(self.labels))

    def _of_shape(self, shape: tuple[int, int], found: np.ndarray) -> np.ndarray:
        if found.shape != shape:
            raise InputError(
                f"{self._place}: a graph answers with shape {found.shape}, expected {shape}; export again"
            )
        return found

    def _in_parts(
        self, ids: Sequence[Sequence[int]], ask: Callable[[Sequence[int]], np.ndarray], width: int
    ) -> np.ndarray:
        """Ask for rows in parts of like length, and put the answers back in the rows' order."""
        if len(ids) == 1:
            return self._of_shape((1, width), ask((0,)))
        out = np.empty((len(ids), width), np.float32)
        for part in parts_of([max(len(row), 1) for row in ids]):
            out[part] = self._of_shape((len(part), width), ask(part))
        return out

    def _part(self, rows: Rows, part: Sequence[int]) -> np.ndarray:
        ids = [rows.ids[i] for i in part]
        if self.manifest.pairs:
            types = [rows.types[i] for i in part]
            sides = [
                [
                    [token for token, t in zip(row, kind, strict=True) if t == side]
                    for row, kind in zip(ids, types, strict=True)
                ]
                for side in (0, 1)
            ]
            if self._siamese:
                return self.compare(*(self._words(side) for side in sides))
            return self._words([*sides[0], *sides[1]])
        if self._own_words:
            return self._words(ids)
        input_ids, lengths = padded(ids, self.manifest.pad_id)
        feed = {
            "input_ids": input_ids,
            "attention_mask": (np.arange(input_ids.shape[1]) < lengths[:, None]).astype(np.int64),
        }
        if "token_type_ids" in self._inputs:
            feed["token_type_ids"], _ = padded([rows.types[i] for i in part], 0)
        return self._run(0, feed)

    def _words(self, ids: Sequence[Sequence[int]]) -> np.ndarray:
        input_ids, lengths = padded(ids, self.manifest.pad_id)
        return self._run(0, {"input_ids": input_ids, "lengths": lengths})


def parts_of(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Cut rows of so many tokens into parts of like length, each bounded with its padding.

    Yields:
        Row numbers of a part.
    """
    part: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if part and (len(part) + 1) * lengths[row] > _TOKENS_AT_ONCE:
            yield part
            part = []
        part.append(row)
    if part:
        yield part
