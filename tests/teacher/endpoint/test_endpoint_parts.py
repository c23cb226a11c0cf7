"""Prompts are filled in literally, answers read strictly, journals read whatever ended them."""

import json
import math
from contextlib import closing
from email.utils import formatdate
from itertools import product
from time import time

import httpx
import numpy as np
import pyarrow as pa
import pytest

from distillkit.data.logits import keys_of
from distillkit.errors import InputError
from distillkit.recipe import EndpointConfig, LabelConfig, load_recipe
from distillkit.teacher.endpoint.answers import LEAST, Options, Reply, Unreadable, read_reply
from distillkit.teacher.endpoint.asker import Asker
from distillkit.teacher.endpoint.budget import Budget, SpentUp, most_tokens
from distillkit.teacher.endpoint.journal import JOURNAL, Answer, Journal, read_journal
from distillkit.teacher.endpoint.prompts import Prompts, draw_examples
from distillkit.teacher.endpoint.service import Service, _retry_after

LABELS = ["negative", "positive"]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{labels} {txt}", "has {txt}: expected {text}, {text_pair}, {labels}, {examples}"),
        ("{text} {labels[0]}", "has {labels[0]}"),
        ("{text} {labels!r}", "has {labels!r}"),
        ("{text:>9}", "has {text:>9}"),
        ("{text} {}", "has {}"),
        ("{text} {", "a brace that is meant is doubled"),
        ("{labels}", "expected {text} in it"),
    ],
)
def test_a_template_with_other_names_is_refused(template, said):
    with pytest.raises(InputError) as refused:
        EndpointConfig(prompt=(template,))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_recipe_says_the_line_of_a_wrong_template(tmp_path):
    recipe = tmp_path / "r.yaml"
    recipe.write_text("label:\n  endpoint:\n    model: m\n    prompt: 'x {txt}'\n")
    with pytest.raises(InputError, match=r"r\.yaml:4: label\.endpoint\.prompt .* has \{txt\}"):
        load_recipe(str(recipe))
    recipe.write_text("label:\n  endpoint:\n    price_per_million: [1, 2.5]\n    max_cost: 3\n")
    assert load_recipe(str(recipe)).label.endpoint.price_per_million == (1.0, 2.5)


def test_a_text_is_put_in_as_it_is():
    text = "a {labels} and {{b}} {0} {"
    prompts = Prompts(EndpointConfig(prompt=("{{{text}}} {labels}",)), LABELS, pairs=False)
    assert prompts.fill(0, b"", text, None) == f"{{{text}}} A. negative\nB. positive"


def test_a_template_is_for_pairs_or_for_single_texts():
    both = EndpointConfig(prompt=("{text} {text_pair}",))
    with pytest.raises(InputError, match=r"the rows have no \{text_pair}"):
        Prompts(both, LABELS, pairs=False)
    with pytest.raises(InputError, match=r"expected \{text_pair} in it"):
        Prompts(EndpointConfig(prompt=("{text}",)), LABELS, pairs=True)


def test_wrong_settings_are_refused():
    for options, said in (
        ({"max_cost": 1.0}, "price_per_million is empty"),
        ({"price_per_million": (1.0,)}, "expected 2"),
        ({"concurrency": 0}, "expected 1 to 256"),
        ({"hard_probability": 1.0}, "hard_probability is 1.0"),
        ({"url": "ftp://there"}, "no address of a service"),
        ({"url": "http://there:port/v1"}, "no address of a service"),
        ({"url": "http://there/v1?key=hidden"}, "put the key in the variable"),
    ):
        with pytest.raises(InputError, match=said) as refused:
            EndpointConfig(**options)
        assert "hidden" not in str(refused.value)
    with pytest.raises(InputError, match="expected LABEL=SENTENCE"):
        LabelConfig(descriptions=("positive",))


def test_a_stage_without_a_service_depends_on_what_it_did_before():
    assert "endpoint" not in LabelConfig().settings()
    one, two = (
        LabelConfig(endpoint=EndpointConfig("http://there/v1", "m", concurrency=n)).settings()
        for n in (1, 2)
    )
    assert one == two


def test_where_a_row_is_an_example_itself_a_spare_one_takes_its_place(train_table):
    config = EndpointConfig(examples=4)
    examples = draw_examples(train_table, LABELS, config, "train")
    assert [one.label for one in examples[4:]] == LABELS
    prompts = Prompts(config, LABELS, examples, pairs=False)
    own, spare = examples[0], examples[4 + LABELS.index(examples[0].label)]
    shown = prompts.fill(0, own.key, own.text, None)
    assert shown.count(own.text) == 1  # where it is asked about
    assert spare.text in shown
    assert spare.text not in prompts.fill(0, b"", "another", None)
    order = np.random.default_rng(0).permutation(len(train_table))
    assert draw_examples(train_table.take(order), LABELS, config, "train") == examples
    with pytest.raises(InputError, match="examples is 97, but 96 different rows have a label"):
        draw_examples(train_table, LABELS, EndpointConfig(examples=97), "train")
    bare = train_table.drop_columns("label")
    with pytest.raises(InputError, match="but 0 different rows"):
        draw_examples(bare, LABELS, config, "bare")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        *((text, 1) for text in ("B", " b.", "B) positive", "Positive!", "**B**", "(B)\n")),
        *((text, 0) for text in ("A", "negative")),
        *((text, None) for text in ("", "C", "neither", "a nice film", "A or B")),
    ],
)
def test_an_answer_is_a_letter_or_a_name_case_and_signs_aside(text, place):
    values = Options(LABELS, 0.9).hard(Reply(text, (), None))
    if place is None:
        assert values is None
    else:
        assert values[place] == math.log(0.9)
        assert math.exp(values[1 - place]) == pytest.approx(0.1)


def test_letters_count_before_names():
    swapped = Options(["b", "a"], 0.9)
    assert swapped.hard(Reply("A", (), None))[0] == math.log(0.9)
    signs = Options(["-", "+"], 0.9)
    assert signs.hard(Reply("+", (), None))[1] == math.log(0.9)
    assert signs.hard(Reply("*", (), None)) is None


def soft(*tokens, labels=LABELS):
    return Options(labels, 0.9).soft(Reply("", (tuple(tokens),), None))


def test_the_tokens_of_a_label_are_summed_up():
    found = soft(("A", math.log(0.5)), (" a", math.log(0.2)), ("positive", math.log(0.25)))
    np.testing.assert_allclose(np.exp(found), [0.7, 0.25])


def test_a_name_of_several_tokens_is_read_from_the_text(tmp_path):
    config = EndpointConfig("http://127.0.0.1:9/v1", "m")
    labels = ["very negative", "very positive"]
    with closing(Service(config)) as service, closing(Journal(tmp_path)) as journal:
        asker = Asker(
            config, Prompts(config, labels, (), {}, pairs=False), labels, service, journal
        )
        listed = ((("very", -0.1), ("the", -3.0)), ((" positive", -0.1),))
        answer = asker._read(b"", 0, Reply("very positive", listed, None))
        assert (answer.hard, int(np.argmax(answer.values))) == (True, 1)
        assert asker._read(b"", 0, Reply("a film", listed, None)).values is None


def test_a_label_that_is_not_listed_is_at_most_as_probable_as_the_least_that_is():
    np.testing.assert_allclose(np.exp(soft(("A", math.log(0.8)))), [0.8, 0.2])
    found = soft(("A", math.log(0.8)), ("The", math.log(0.01)))
    np.testing.assert_allclose(np.exp(found), [0.8, 0.01])
    assert soft(("A", 0.0))[1] == LEAST
    assert soft(("The", math.log(0.8))) is None


@pytest.mark.parametrize(
    "body",
    [
        [],
        "text",
        {"choices": []},
        {"choices": [{"message": {"content": 5}}]},
        {"choices": [{"message": {}}]},
        {"choices": [{"text": "A", "logprobs": {"tokens": ["A"]}}]},
        {"choices": [{"text": "A", "logprobs": {"tokens": ["A"], "token_logprobs": [math.nan]}}]},
    ],
)
def test_a_reply_without_an_answer_is_unreadable(body):
    with pytest.raises(Unreadable):
        read_reply(body)


def test_a_reply_may_lack_all_but_the_answer():
    bare = {"choices": [{"message": {"content": None}, "logprobs": {"content": None}}]}
    assert read_reply(bare) == Reply("", (), None)
    odd = {"choices": [{"text": "A"}], "usage": {"prompt_tokens": None}}
    assert read_reply(odd) == Reply("A", (), None)


def test_a_wait_may_be_given_as_a_date():
    def after(value):
        return _retry_after(httpx.Response(429, headers={"Retry-After": value}))

    assert after("1.5") == 1.5
    assert after(formatdate(time() + 100, usegmt=True)) == pytest.approx(100, abs=2)
    assert after("1e9") == 3600
    assert after("soon") is after("nan") is None


def test_a_journal_counts_what_a_killed_run_began(tmp_path):
    key = keys_of(pa.table({"text": ["a"]}))[0].as_py()
    journal = Journal(tmp_path)
    journal.end(journal.begin((50, 4)), (40, 1), Answer(key, 0, [-0.5, -1.0]))
    journal.begin((70, 4))  # and killed
    with (tmp_path / JOURNAL).open("a") as file:
        file.write('{"call": 1, "used": [6')
    spent = read_journal(tmp_path).spent
    assert (spent.calls, spent.prompt_tokens, spent.answer_tokens) == (2, 110, 5)
    again = Journal(tmp_path)
    assert again.find(key, 0).values == [-0.5, -1.0]
    again.end(again.begin((70, 4)), (60, 1), None)
    again.compact(keys_of(pa.table({"text": ["a"]})))
    again.close()
    assert read_journal(tmp_path).spent == again.spent
    assert (again.spent.calls, again.spent.prompt_tokens, again.spent.answers) == (3, 170, 1)
    assert len((tmp_path / JOURNAL).read_text().splitlines()) == 1


def test_what_no_shard_has_outlives_the_compaction(tmp_path):
    one, two = keys_of(pa.table({"text": ["a", "b"]})).to_pylist()
    journal = Journal(tmp_path)
    for key in (one, two):
        journal.end(journal.begin((50, 4)), (40, 1), Answer(key, 0, None, hard=True))
    journal.compact(keys_of(pa.table({"text": ["a"]})))
    journal.close()
    record = read_journal(tmp_path)
    assert list(record.answers) == [(two, 0)]
    assert record.spent.unanswered == 2


def test_what_a_shard_has_is_forgotten_in_memory_and_stays_in_the_file(tmp_path):
    one, two = keys_of(pa.table({"text": ["a", "b"]})).to_pylist()
    journal = Journal(tmp_path)
    for key, prompt in product((one, two), range(2)):
        journal.end(journal.begin((50, 4)), (40, 1), Answer(key, prompt, [-0.5, -1.0]))
    journal.forget([one], 2)
    assert journal.find(one, 0) is journal.find(one, 1) is None
    assert journal.find(two, 1).values == [-0.5, -1.0]
    assert len(read_journal(tmp_path).answers) == 4


def test_a_damaged_journal_is_said_with_its_line(tmp_path):
    (tmp_path / JOURNAL).write_text(json.dumps({"call": 0, "begun": [1, 1]}) + "\nnonsense\n")
    with pytest.raises(InputError, match=r"answers\.jsonl:2: damaged"):
        read_journal(tmp_path)


def test_no_prompt_takes_more_tokens_than_it_has_bytes():
    assert most_tokens("天气", EndpointConfig(answer_tokens=3)) == (6 + 64, 3)


def test_a_service_that_adds_to_prompts_is_known_after_one_call(tmp_path):
    config = EndpointConfig(max_tokens=2000)
    budget = Budget(config, Journal(tmp_path))
    with budget.call("well") as call:  # 4 + 64 + 4 tokens at most, as far as anybody knows
        call.used = (900, 1)
    with budget.call("well") as call:
        call.used = (900, 1)
    with pytest.raises(SpentUp, match="max_tokens 2,000 is reached"), budget.call("well"):
        pass
