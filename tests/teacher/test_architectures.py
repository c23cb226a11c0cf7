"""Every kind of encoder on the shelf is fine-tuned, labels, and gives word vectors."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from distillkit.pipeline import Classifier
from distillkit.recipe import LabelConfig, TeacherConfig, TrainingConfig
from distillkit.teacher.fine_tune import fine_tune, save
from distillkit.teacher.label import label_table
from distillkit.teacher.word_states import word_states

SMALL = {"hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 64}
SMALL |= {"num_hidden_layers": 2, "num_attention_heads": 2, "pad_token_id": 0}
SMALL |= {"cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra", "modernbert"])
def test_encoder_is_fine_tuned_labels_and_gives_states_of_words(
    kind, encoder_folder, train_table, dev_table, tmp_path
):
    encoder, teacher = str(tmp_path / "encoder"), tmp_path / "teacher"
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    if kind in ("roberta", "modernbert"):  # their own tokenizers know no token types
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), **SMALL)
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(encoder)
    tokenizer.save_pretrained(encoder)
    training = TrainingConfig(epochs=25, batch_size=16, learning_rate=3e-3, precision="fp32")
    how = TeacherConfig(encoder, 16, training)
    model, tokenizer, result = fine_tune(train_table, dev_table, how, seed=1)
    assert result.best_score > 0.9
    save(model, tokenizer, teacher, 16)
    config = LabelConfig(precision="fp32")
    summary = label_table(train_table, tmp_path / "store", str(teacher), config)
    assert summary["labelled_now"] == len(train_table)
    states = word_states(model, tokenizer, ["good", "bad", "film"])
    assert states.shape == (3, 3, 16)
    assert torch.isfinite(states).all()
    assert all(not torch.equal(*layer[:2]) for layer in states.unbind(1))


def test_a_decoder_without_a_padding_token_in_its_config_answers_batches_as_single_texts(
    encoder_folder, tmp_path
):
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    sizes = SMALL | {"num_key_value_heads": 2, "pad_token_id": None}
    config = AutoConfig.for_model("qwen2", vocab_size=len(tokenizer), **sizes)
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = Classifier(str(tmp_path))
    texts = ["the film was great", "bad", "a plot ."]
    alone = np.concatenate([model.logits([text]) for text in texts])
    np.testing.assert_allclose(model.logits(texts), alone, atol=1e-5)
