"""A transformer of few layers: cut from the teacher, or fresh, with the teacher's own tokenizer.

For single texts, and for pairs read together, it is an ordinary checkpoint of the teacher's own
kind, which transformers loads without distillkit.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, processors
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from distillkit.data.labels import labels_of, named, unnamed
from distillkit.errors import InputError
from distillkit.recipe import StudentConfig
from distillkit.student.model import SiameseStudent, TextEncoder
from distillkit.student.pooling import Pooling
from distillkit.student.vocabulary import with_backend
from distillkit.training.layers import encoder_layers, encoder_parts, parts_of, positions_of

# Units of an attention head in every BERT but the smallest (Devlin et al. 2019).
_HEAD_UNITS = 64
_TYPED = ("bert", "electra")  # model types whose tokens are of the first or of the second text


def check_teacher(student: StudentConfig, teacher: Any) -> None:
    """Refuse an encoder, by its configuration, that a student cannot be cut from.

    Raises:
        InputError: Its kind is not known, it has fewer layers, or the width is no multiple of a head's.
    """
    parts_of(teacher.model_type, f"student.kind {student.kind}", "bilstm")
    width = student.hidden_size
    if width and width % _heads(width):
        raise InputError(
            f"student.hidden_size is {width}: expected a multiple of {_HEAD_UNITS}, or 0 to cut it from the teacher"
        )
    if student.layers > teacher.num_hidden_layers:
        raise InputError(
            f"student.layers is {student.layers}: expected at most {teacher.num_hidden_layers}, which the teacher has"
        )


def check_teacher_of_sides(student: StudentConfig, teacher: Any) -> None:
    """Refuse an encoder, by its configuration, that no `siamese-transformer` can be cut from.

    Raises:
        InputError: As `check_teacher`; or its tokens have no types, which tell the texts apart.
    """
    check_teacher(student, teacher)
    if teacher.model_type not in _TYPED:
        raise InputError(
            f"student.kind is {student.kind}, but a {teacher.model_type} does not tell the texts of a pair apart: expected transformer"
        )


def _heads(width: int) -> int:
    return max(1, width // _HEAD_UNITS)


def few_layers(
    teacher: PreTrainedModel, layers: int, hidden_size: int, labels: Sequence[str], dropout: float
) -> Any:
    """Build a small transformer for sequence classification.

    Args:
        teacher: A BERT-class classifier that `check_teacher` lets pass; it is left as it is.
        layers: L, at most the teacher's.
        hidden_size: 0 cuts it from the teacher: embeddings, head, and layers as `layer_map` has
            them (Sanh et al. 2019, DistilBERT). Any other number draws a fresh one of this width.
        labels: C class names.
        dropout: Of states and attention, 0 to 1.
    """
    # Imported here: loading the Auto classes is what has this module loaded (see register.py).
    from transformers import AutoModelForSequenceClassification

    above = encoder_layers(teacher)
    config = copy.deepcopy(teacher.config)
    parts = encoder_parts(teacher)
    changed = {"num_hidden_layers": layers} | dict.fromkeys(parts.dropouts, dropout)
    if hidden_size:
        changed |= {
            "hidden_size": hidden_size,
            "num_attention_heads": _heads(hidden_size),
            parts.wide_size: 4 * hidden_size,
        }
    for name, value in (changed | named(labels)).items():
        setattr(config, name, value)
    own = labels_of(teacher)
    same_head = own == list(labels) or (unnamed(own) and len(own) == len(labels))
    student = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)
    if hidden_size:
        return student
    kept = nn.ModuleList(above[i] for i in layer_map(layers, len(above)))
    encoder_layers(student).load_state_dict(kept.state_dict())
    copied = {id(parameter) for parameter in encoder_layers(student).parameters()}
    theirs = dict(teacher.named_parameters())
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            if id(parameter) not in copied and (
                same_head or name.startswith(f"{student.base_model_prefix}.")
            ):
                parameter.copy_(theirs[name])
    return student


def few_layers_student(
    labels: Sequence[str], config: StudentConfig, teacher: Any, tokenizer: Any
) -> tuple[Any, Any]:
    """Build a `transformer` student and its tokenizer, as `StudentKind.from_teacher` says."""
    check_teacher(config, teacher.config)
    model = few_layers(teacher, config.layers, config.hidden_size, labels, config.dropout)
    longest = positions_of(teacher) or config.max_tokens
    tokenizer.model_max_length = min(tokenizer.model_max_length, config.max_tokens, longest)
    return model, tokenizer


def siamese_student(
    labels: Sequence[str], config: StudentConfig, teacher: Any, tokenizer: Any
) -> tuple[Any, Any]:
    """Build a `siamese-transformer` student and its tokenizer, as `few_layers_student` does."""
    check_teacher_of_sides(config, teacher.config)
    model, tokenizer = few_layers_student(labels, config, teacher, tokenizer)
    siamese = SiameseTransformerForSequenceClassification(
        SiameseTransformerConfig(
            encoder=model.base_model.config.to_dict(),
            head_size=config.head_size,
            dropout=config.dropout,
            pad_token_id=tokenizer.pad_token_id,
            **({} if config.pooling == "auto" else {"pooling": config.pooling}),
            **named(labels),
        )
    )
    inner: Any = siamese.encoder.transformer
    inner.load_state_dict(model.base_model.state_dict())
    return siamese, _alike_on_both_sides(tokenizer)


def _alike_on_both_sides(tokenizer: Any) -> Any:
    """Return a BERT's tokenizer that begins a second text as the first: as it is read alone."""
    begin, end = tokenizer.cls_token, tokenizer.sep_token
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} {begin}:1 $B:1 {end}:1",
        special_tokens=[(name, tokenizer.convert_tokens_to_ids(name)) for name in (begin, end)],
    )
    return with_backend(tokenizer, backend)


def layer_map(layers: int, of: int) -> list[int]:
    """Choose layers evenly spaced, the last among them.

    >>> layer_map(3, 6), layer_map(2, 12), layer_map(4, 4)
    ([1, 3, 5], [5, 11], [0, 1, 2, 3])
    """
    return [(i + 1) * of // layers - 1 for i in range(layers)]


class SiameseTransformerConfig(PretrainedConfig):
    """Shape of a siamese transformer student.

    Args:
        encoder: The configuration of the encoder, as its `to_dict` gives it.
        pooling: How a text's vector comes from its tokens' states: max, mean or attention.
        head_size: Units of the ReLU layer.
        dropout: On the ReLU layer's input, 0 to 1.
    """

    model_type = "distillkit-siamese-transformer"

    def __init__(
        self,
        encoder: dict[str, Any] | None = None,
        pooling: str = "mean",
        head_size: int = 200,
        dropout: float = 0.1,
        pad_token_id: int = 0,
        **kwargs: Any,
    ) -> None:
        self.encoder = encoder or {"model_type": "bert", "num_hidden_layers": 2}
        self.pooling = pooling
        self.head_size = head_size
        self.dropout = dropout
        super().__init__(pad_token_id=pad_token_id, **kwargs)


class TransformerEncoder(TextEncoder):
    """A transformer without a head, and a pooling of its states."""

    def __init__(self, config: SiameseTransformerConfig) -> None:
        from transformers import AutoConfig, AutoModel  # as above

        super().__init__()
        of = dict(config.encoder)
        self.transformer = AutoModel.from_config(
            AutoConfig.for_model(of.pop("model_type"), **of), trust_remote_code=False
        )
        self.width = self.transformer.config.hidden_size
        self.pooling = Pooling(config.pooling, self.width)

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode texts (B, T), each row's own tokens first, lengths (B,), to (B, H)."""
        mask = torch.arange(input_ids.shape[1], device=input_ids.device) < lengths[:, None]
        # A row without tokens attends to its padding; pooling gives it zeros all the same.
        mask[:, 0] = True
        ids = input_ids.masked_fill(~mask, self.transformer.config.pad_token_id)
        states = self.transformer(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        return self.pooling(states.transpose(0, 1), lengths)


class SiameseTransformerForSequenceClassification(SiameseStudent):
    """A small transformer that reads the two texts of a pair apart."""

    config_class = SiameseTransformerConfig
    encoder_class = TransformerEncoder
