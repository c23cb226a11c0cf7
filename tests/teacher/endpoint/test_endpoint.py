"""A service labels a table: its log-probabilities, each call once, within the budget, key unseen."""

import errno
import json
import math
import os
import re
import sys
import time
from collections import Counter
from multiprocessing import get_context

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distillkit import pipeline
from distillkit.cli import main
from distillkit.data.files import hold
from distillkit.data.logits import join_logits, read_store
from distillkit.data.tables import write_table
from distillkit.errors import InputError
from distillkit.recipe import ColumnsConfig, EndpointConfig, LabelConfig
from distillkit.teacher.endpoint.journal import JOURNAL, read_journal

LABELS = ["positive", "negative"]


@pytest.fixture
def store(tmp_path):
    return tmp_path / "s"


@pytest.fixture
def bare(train_table, tmp_path):
    """The texts without their labels."""
    write_table(train_table.drop_columns("label").slice(0, 40), tmp_path / "bare.parquet")
    return str(tmp_path / "bare.parquet")


def texts_in(source):
    return pq.read_table(source)["text"].to_pylist()


def ask(
    server, source, store, labels=LABELS, columns=None, shard_rows=16, descriptions=(), **options
):
    config = LabelConfig(
        shard_rows=shard_rows,
        storage="fp32",
        endpoint=EndpointConfig(server.url, "tiny", **options),
        descriptions=descriptions,
    )
    return pipeline.label(source, store, "", config, columns or ColumnsConfig(), labels=labels)


def expected(server, texts, classes=2):
    return [server.distribution(text, classes) for text in texts]


def stored(texts, store):
    return join_logits(pa.table({"text": texts}), store)


def shards(store):
    return {path.name: path.read_bytes() for path in store.glob("*/shard-*.parquet")}


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_logits_are_the_services_log_probabilities(server, bare, store, api):
    texts = texts_in(bare)
    summary = ask(server, bare, store, api=api)
    assert summary["labelled_now"] == summary["calls"] == len(texts)
    assert summary["labels"] == LABELS
    assert summary["tokens"] == server.tokens
    np.testing.assert_allclose(stored(texts, store), expected(server, texts), atol=1e-5)
    assert server.asked == Counter(texts)
    assert {path for path, _ in server.bodies} == {
        "/v1/chat/completions" if api == "chat" else "/v1/completions"
    }
    assert all(body["max_tokens"] == 4 for _, body in server.bodies)


def test_labels_are_options_in_the_order_that_they_are_given_in(server, bare, store, tmp_path):
    ask(server, bare, store)
    ask(server, bare, tmp_path / "other", labels=LABELS[::-1])
    prompts = [body["messages"][0]["content"] for _, body in server.bodies]
    assert "A. positive\nB. negative\n" in prompts[0]
    assert "A. negative\nB. positive\n" in prompts[-1]
    assert read_store(tmp_path / "other")["teacher"]["labels"] == LABELS[::-1]
    texts = texts_in(bare)
    assert np.array_equal(stored(texts, store), stored(texts, tmp_path / "other"))


def test_labels_that_the_service_does_not_list_share_what_is_left(server, bare, store):
    server.mode, server.classes = "top-2", 4
    ask(server, bare, store, labels=["a", "b", "c", "d"])
    texts = texts_in(bare)
    for found, values in zip(np.exp(stored(texts, store)), expected(server, texts, 4), strict=True):
        true = np.exp(values)
        listed = np.argsort(-true, kind="stable")[:2]
        others = [i for i in range(4) if i not in listed]
        np.testing.assert_allclose(found[listed], true[listed], rtol=1e-4)
        np.testing.assert_allclose(found[others], true[others].sum() / 2, rtol=1e-3)


@pytest.mark.parametrize("mode", ["hard", "name"])
@pytest.mark.parametrize("logprobs", [True, False])
def test_a_service_without_log_probabilities_gives_hard_labels(
    server, bare, store, mode, logprobs, capfd
):
    server.mode = mode
    ask(server, bare, store, hard_probability=0.8, logprobs=logprobs)
    texts = texts_in(bare)
    assert ("logprobs" in server.bodies[0][1]) == logprobs
    assert capfd.readouterr().err.count("its answers are hard labels") == logprobs
    for found, values in zip(stored(texts, store), expected(server, texts), strict=True):
        right = values.index(max(values))
        np.testing.assert_allclose(found[[right, 1 - right]], np.log([0.8, 0.2]), rtol=1e-5)


def test_an_answer_that_is_no_label_is_asked_once_more(server, bare, store):
    texts = texts_in(bare)
    server.faults = ["logprobs", "echo"]
    summary = ask(server, bare, store, concurrency=1)
    assert summary["calls"] == len(texts) + 1
    assert summary["unanswered"] == 0
    np.testing.assert_allclose(stored(texts, store), expected(server, texts), atol=1e-5)


def test_an_unanswered_row_says_nothing_and_is_counted(server, bare, store, capfd):
    texts = texts_in(bare)
    server.faults = ["logprobs", "echo", "echo"]
    assert ask(server, bare, store, concurrency=1)["unanswered"] == 1
    assert "1 answers name no label" in capfd.readouterr().err
    np.testing.assert_allclose(stored(texts[1:2], store), np.log([[0.5, 0.5]]), rtol=1e-5)
    calls = server.calls
    assert ask(server, bare, store)["unanswered"] == 1
    assert server.calls == calls


def test_a_service_that_never_answers_with_a_label_is_given_up(server, bare, store):
    server.mode = "echo"
    said = r"none of 20 answers is a label, the last is 'Choose the label .*expected a letter"
    with pytest.raises(InputError, match=said):
        ask(server, bare, store, concurrency=1, shard_rows=100)
    assert server.calls == 40


def test_faults_are_waited_out(server, bare, store):
    texts = texts_in(bare)
    server.faults = ["500", "cut", "wrong-json", "429", "time-out"]
    ask(server, bare, store, concurrency=4, timeout=server.late / 2)
    np.testing.assert_allclose(stored(texts, store), expected(server, texts), atol=1e-5)
    server.settle()
    billed_twice = sum(server.asked.values()) - len(texts)
    assert billed_twice == 3  # cut, wrong and late answers are lost, and are billed all the same


def test_retry_after_holds_all_calls_back(server, bare, store):
    server.faults = ["logprobs"] * 9 + ["429"]
    ask(server, bare, store, concurrency=4)
    pauses = np.diff(sorted(server.times))
    assert pauses.max() > 0.2


def test_a_fault_that_stays_ends_the_run_in_one_line(server, bare, store):
    server.mode = "500"
    said = r"3 calls about one row failed, the last with 500: no luck; .* the same command goes on"
    with pytest.raises(InputError, match=said):
        ask(server, bare, store, retries=2)
    assert not store.exists()


@pytest.mark.parametrize("mode", ["400", "403", "404"])
def test_a_refusal_stops_at_once_with_the_services_words(server, bare, store, mode):
    server.mode = mode
    words = {"400": "400: too long", "403": "403: not for you", "404": "404: The model `gone` does"}
    with pytest.raises(InputError, match=words[mode]):
        ask(server, bare, store)
    assert server.calls == 1
    assert not store.exists()


@pytest.mark.parametrize("fault", ["new-model", "no-logprobs", "few"])
def test_what_a_service_does_not_take_is_asked_otherwise(server, bare, store, fault):
    server.most_top, server.faults = 5, [fault]
    ask(server, bare, store)
    _, body = server.bodies[-1]
    renamed = fault == "new-model"
    limit, other = ("max_completion_tokens", "max_tokens")[:: 1 if renamed else -1]
    assert (body["top_logprobs"], body[limit]) == (5, 4)
    assert other not in body
    # 20 and 10 are refused, and 20 by the old name.
    assert server.calls == len(texts_in(bare)) + 2 + renamed


def test_a_wrong_key_is_refused_and_no_key_is_ever_written(server, bare, store, capfd, monkeypatch):
    command = ["label", bare, str(store), "--endpoint", server.url, "--model", "tiny"]
    command += ["--labels", *LABELS, "--label.endpoint.max-calls", "10"]
    secret = "sk-another-secret"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    assert main(command) == 1
    said = capfd.readouterr()
    assert "401: Incorrect API key provided: Bearer ***" in said.err
    assert len(said.err.splitlines()) == 1
    monkeypatch.undo()
    monkeypatch.setenv("MY_KEY", server.key)
    assert main([*command, "--label.endpoint.key-variable", "MY_KEY"]) == 1
    shown = said.out + said.err + "".join(capfd.readouterr())
    files = b"".join(path.read_bytes() for path in store.rglob("*") if path.is_file())
    assert b'"url"' in files
    assert b'"call"' in files
    for key in (secret, server.key):
        assert key not in shown
        assert key.encode() not in files


def test_without_the_variable_no_key_is_sent(server, bare, store, monkeypatch):
    server.key = ""
    monkeypatch.delenv("OPENAI_API_KEY")
    assert ask(server, bare, store)["labelled_now"] == 40


def test_pairs_are_asked_about_together(server, pair_table, store, tmp_path):
    table = pair_table.drop_columns("label").slice(0, 20)
    write_table(table, tmp_path / "pairs.parquet")
    columns = ColumnsConfig(text_pair="text_pair")
    ask(server, str(tmp_path / "pairs.parquet"), store, ["kind", "unkind"], columns)
    both = [f"{row['text']} {row['text_pair']}" for row in table.to_pylist()]
    assert server.asked == Counter(both)
    np.testing.assert_allclose(join_logits(table, store), expected(server, both), atol=1e-5)


def test_several_prompts_are_averaged(server, bare, store):
    def by_prompt(text, classes):
        share = 0.9 if text.startswith("Well: ") else 0.5
        return [math.log(share), math.log(1 - share)]

    server.distribution = by_prompt
    prompts = ("{labels}\nText: {text}\nLabel:", "{labels}\nText: Well: {text}\nLabel:")
    assert ask(server, bare, store, prompt=prompts)["calls"] == 80
    mean = (np.log([0.9, 0.1]) + np.log([0.5, 0.5])) / 2
    np.testing.assert_allclose(stored(texts_in(bare)[:3], store), [mean] * 3, atol=1e-5)


def test_examples_are_balanced_and_never_the_row_that_is_asked_about(
    server, train_table, store, tmp_path
):
    write_table(train_table, tmp_path / "train.parquet")
    server.distribution = lambda text, classes: [*reversed(_kind_first(text))]
    summary = ask(
        server, str(tmp_path / "train.parquet"), store, ["negative", "positive"], examples=4
    )
    assert summary["accuracy_on_labelled"] == 1
    gold = dict(zip(*train_table.to_pydict().values(), strict=True))
    for _, body in server.bodies:
        *shown, asked = re.findall("Text: (.*)\nLabel:( [AB])?", body["messages"][0]["content"])
        assert [asked[0] == text for text, _ in shown] == [False] * 4
        assert sorted(letter for _, letter in shown) == [" A", " A", " B", " B"]
        assert all(gold[text] == ("negative", "positive")[letter == " B"] for text, letter in shown)


def _kind_first(text):
    kind = any(word in text.split() for word in ("good", "great", "fine", "bright"))
    return [math.log(0.9), math.log(0.1)] if kind else [math.log(0.1), math.log(0.9)]


def test_a_service_at_chance_is_refused_and_asked_nothing_twice(
    server, train_table, store, tmp_path
):
    write_table(train_table, tmp_path / "train.parquet")
    server.distribution = lambda text, classes: [math.log(0.9), math.log(0.1)]
    for _ in range(2):
        with pytest.raises(
            InputError, match=r"at chance on the labelled rows.*label\.endpoint\.prompt"
        ):
            ask(server, str(tmp_path / "train.parquet"), store)
        assert server.calls == 96


def test_a_finished_store_asks_nothing_and_a_larger_table_only_what_is_new(
    server, train_table, store, tmp_path
):
    server.distribution = lambda text, classes: _kind_first(text)
    for rows, calls in ((50, 50), (50, 50), (96, 96)):
        write_table(train_table.slice(0, rows), tmp_path / "t.parquet")
        summary = ask(server, str(tmp_path / "t.parquet"), store)
        assert (server.calls, summary["calls"], summary["accuracy_on_labelled"]) == (
            calls,
            calls,
            1,
        )
    record = read_journal(store / "teacher")
    assert not record.answers  # the shards have them
    assert record.spent.prompt_tokens + record.spent.answer_tokens == server.tokens


def test_many_calls_at_a_time_give_the_same_bytes_as_one(server, bare, store, tmp_path):
    server.delay = 0.005
    ask(server, bare, store, concurrency=8)
    assert server.most_at_once > 3
    ask(server, bare, tmp_path / "one", concurrency=1)
    assert len(shards(store)) == 3
    assert shards(store) == shards(tmp_path / "one")
    assert {path.name for path in (store / "teacher").iterdir()} == {
        *shards(store),
        "manifest.json",
        JOURNAL,
    }


def test_a_run_that_is_killed_asks_no_answered_row_again(server, bare, store):
    server.delay = 0.02
    most = {"concurrency": 2, "max_calls": 43}
    run = get_context("fork").Process(
        target=ask, args=(server, bare, store), kwargs=most, daemon=True
    )
    run.start()
    journal = store / "teacher" / JOURNAL
    deadline = time.monotonic() + 60
    while not journal.is_file() or journal.read_text().count('"key"') < 8:
        assert time.monotonic() < deadline
        assert run.is_alive()
        time.sleep(0.005)
    run.kill()
    run.join()
    server.settle()  # what was under way is answered, and lost
    with journal.open("a") as torn:
        torn.write('{"call": 11, "us')
    known = {key.hex() for key, _ in read_journal(store / "teacher").answers}
    before, lost = server.calls, server.calls - len(known)
    assert len(known) >= 8
    assert lost <= 2
    ask(server, bare, store, **most)
    assert server.calls == before + 40 - len(known) <= 43
    assert sum(server.asked.values()) - 40 == lost
    np.testing.assert_allclose(
        stored(texts_in(bare), store), expected(server, texts_in(bare)), atol=1e-5
    )


@pytest.mark.parametrize("limit", ["max_calls", "max_tokens", "max_cost"])
def test_the_budget_is_never_passed_and_what_was_answered_is_kept(server, bare, store, limit):
    most = {"max_calls": 25, "max_tokens": 3000, "max_cost": 0.003}[limit]
    server.delay, server.characters = 0.02, 1  # so dear that 8 calls at a time matter
    said = rf"s/teacher: label.endpoint.{limit} .* is reached: (\d+) of 40 rows are answered and kept, (\d+) are left"
    said += rf"; .* --label.endpoint.max-{limit[4:]} (\S+) or so"
    prices = {"price_per_million": (1.0, 1.0)} if limit == "max_cost" else {}
    with pytest.raises(InputError, match=said) as stopped:
        ask(server, bare, store, **prices, **{limit: most})
    answered, left, more = re.search(said, str(stopped.value)).groups()
    assert int(answered) == sum(server.asked.values()) == 40 - int(left)
    spent = {"max_calls": server.calls, "max_tokens": server.tokens}
    assert 0.7 * most < spent.get(limit, server.tokens / 1e6) <= most
    with pytest.raises(InputError, match="is reached: "):  # an earlier run counts
        ask(server, bare, store, **prices, **{limit: most})
    assert int(answered) == server.calls
    more = float(more)  # what the line says is enough
    ask(server, bare, store, **prices, **{limit: more if limit == "max_cost" else int(more)})
    assert server.asked == Counter(texts_in(bare))


def test_tokens_are_estimated_where_the_service_does_not_say(server, bare, store):
    server.mode = "no-usage"
    summary = ask(server, bare, store)
    bodies = [body["messages"][0]["content"] for _, body in server.bodies]
    assert summary["tokens"] == sum(-(-len(prompt.encode()) // 4) + 1 for prompt in bodies)


def test_the_advice_of_a_spent_budget_ends(server, tmp_path, store):
    rows = [f"文字很多的一句评论，第{i}条：" + "好" * (i + 1) for i in range(12)]
    write_table(pa.table({"text": rows}), tmp_path / "zh.parquet")
    server.mode, most = "no-usage", 700
    for _ in range(3):
        try:
            ask(server, str(tmp_path / "zh.parquet"), store, max_tokens=most)
            break
        except InputError as error:
            more = int(re.search(r"--label.endpoint.max-tokens (\d+) or so", str(error))[1])
            assert more > most
            most = more
    assert server.asked == Counter(rows)


def test_requests_per_minute_are_spread(server, train_table, store, tmp_path):
    write_table(train_table.drop_columns("label").slice(0, 6), tmp_path / "six.parquet")
    ask(server, str(tmp_path / "six.parquet"), store, requests_per_minute=600)
    assert np.ptp(server.times) > 0.4  # six, 0.1 apart; on a busy machine two may arrive together


def test_a_dry_run_asks_nothing_and_writes_nothing(server, bare, store, capfd):
    command = ["label", bare, str(store), "--endpoint", server.url, "--model", "tiny"]
    command += ["--labels", *LABELS, "--label.endpoint.price-per-million", "2", "4", "--dry-run"]
    assert main(command) == 0
    found = json.loads(capfd.readouterr().out)
    planned = found["planned"]
    assert (planned["rows"], planned["calls"], found["distinct"]) == (40, 40, 40)
    assert planned["cost"] == pytest.approx((2 * (planned["tokens"] - 160) + 4 * 160) / 1e6)
    assert server.calls == 0
    assert not store.exists()
    assert main([*command[:-1], "--label.endpoint.max-calls", "10"]) == 1
    capfd.readouterr()
    assert main(command) == 0
    assert json.loads(capfd.readouterr().out)["planned"]["calls"] == 30


def test_the_manifest_says_what_the_logits_depend_on(server, bare, store):
    ask(server, bare, store, descriptions=("positive=It is liked.",))
    manifest = read_store(store)["teacher"]
    assert manifest["head"] == "softmax"
    settings = [manifest[name] for name in ("url", "model", "top_logprobs", "examples_sha256")]
    assert settings == [server.url, "tiny", 20, None]
    assert "{labels}" in manifest["prompt"][0]
    assert "share alike" in manifest["rules"]["log-probabilities"]
    assert (
        "A. positive: It is liked.\nB. negative\n" in server.bodies[0][1]["messages"][0]["content"]
    )
    same = {"descriptions": ("positive=It is liked.",)}
    for change in ({"prompt": ("Well? {text}",)}, {"hard_probability": 0.7}):
        with pytest.raises(InputError, match=rf"made with {next(iter(change))} .*another --name"):
            ask(server, bare, store, **same, **change)
    calls = server.calls
    ask(server, bare, store, **same, concurrency=2, retries=1)
    assert server.calls == calls


def test_one_process_at_a_time_asks(server, bare, store):
    with hold(store / "teacher"):
        said = rf"teacher: process {os.getpid()} on .* is writing it"
        with pytest.raises(InputError, match=said):
            ask(server, bare, store)
    assert server.calls == 0
    assert not store.exists()


def test_a_full_disk_is_said_in_one_line(server, bare, store, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("distillkit.teacher.endpoint.journal.Journal.end", full)
    with pytest.raises(InputError, match=r"s/teacher: no space left on the disk"):
        ask(server, bare, store)


def test_an_interruption_keeps_what_is_answered(server, bare, store, monkeypatch):
    from distillkit.teacher.endpoint import asker

    class Interrupted(asker.Service):
        def send(self, prompt, about):
            if server.calls >= 10:
                raise KeyboardInterrupt
            return super().send(prompt, about)

    monkeypatch.setattr(asker, "Service", Interrupted)
    monkeypatch.setattr("distillkit.teacher.endpoint.service.Service", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask(server, bare, store, concurrency=1)
    monkeypatch.undo()
    monkeypatch.setenv("OPENAI_API_KEY", server.key)
    ask(server, bare, store)
    assert server.asked == Counter(texts_in(bare))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--endpoint", "URL"], "no model is named; give --model"),
        (["--endpoint", "URL", "--model", "m"], "no labels to choose from; .*--labels"),
        (["--endpoint", "URL", "--model", "m", "--labels", "a"], "1 labels \\(a\\) to choose from"),
        (["--endpoint", "URL", "--model", "m", "--teacher", "t"], "expected either --teacher"),
        (["--logits", "x.jsonl", "--dry-run"], "--dry-run says what an --endpoint would be asked"),
        (["--endpoint", "URL", "--data.task", "regression"], "a service gives one class a text"),
        (["--endpoint", "http://me:hidden@there/v1"], "put the key in the variable OPENAI_API_KEY"),
        (["--label.endpoint.url", "http://me:hidden@there/v1"], "in the variable OPENAI_API_KEY"),
        (["--label.endpoint.key-variable", "sk-hidden"], "no name of an environment variable"),
        (["--endpoint", "there/v1"], "expected one as http://localhost:8000/v1"),
    ],
)
def test_mistakes_are_said_in_one_line(server, bare, store, capfd, options, said):
    try:
        status = main(["label", bare, str(store), *(o.replace("URL", server.url) for o in options)])
    except SystemExit as stop:
        status = stop.code
    assert status in (1, 2)
    shown = capfd.readouterr().err
    assert re.search(said, shown)
    assert "hidden" not in shown
    assert len(shown.splitlines()) == status
    assert server.calls == 0


def test_the_extra_that_lacks_is_named(server, bare, store, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    for name in ("service", "asker"):
        monkeypatch.delitem(sys.modules, f"distillkit.teacher.endpoint.{name}", raising=False)
    command = ["label", bare, str(store), "--endpoint", server.url, "--model", "tiny"]
    assert main([*command, "--labels", *LABELS]) == 1
    assert "label needs httpx: pip install 'distillkit[endpoint]'" in capfd.readouterr().err
