"""`distillkit serve` as its clients see it: answers, limits, refusals, its end; and batching."""

import asyncio
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from distillkit import pipeline
from distillkit.cli import main
from distillkit.pipeline.export import change_manifest
from distillkit.runtime import Predictor
from distillkit.serve import server
from distillkit.serve.app import Service
from distillkit.serve.batching import Batcher, QueueFull
from distillkit.serve.limits import Limits

TEXTS = [
    "the film was great .",
    "a plot is weak .",
    "",
    "nothing\0known \U0001f600 here",
    "the cast was bad . " * 40,
]
MAIN = """
import sys
class Absent:
    def find_spec(self, name, *place):
        if name in sys.argv[1].split(","):
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Absent())
from distillkit.cli import main
sys.exit(main(sys.argv[2:]))
"""
# What trains has no place in a server.
TRAINING = "torch,transformers,scipy,sklearn,pyarrow,datasets,tqdm"


@pytest.fixture(scope="module")
def bundle(classifier_folder, tmp_path_factory):
    target = tmp_path_factory.mktemp("bundles") / "teacher"
    pipeline.export(classifier_folder, target)
    return target


class Client:
    """Speaks to a server that runs."""

    def __init__(self, process, port):
        self.process, self.port = process, port

    def ask(self, method="POST", path="/predict", body=b"", headers=None):
        headers = {"Content-Type": "application/json"} if headers is None else headers
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            self.headers = answer.headers
            return answer.status, answer.read()
        finally:
            connection.close()

    def predict(self, **body):
        status, said = self.ask(body=json.dumps(body))
        return status, json.loads(said)

    def metric(self, name):
        lines = self.ask("GET", "/metrics")[1].decode().splitlines()
        values = dict(line.rpartition(" ")[::2] for line in lines)
        return float(values.get(name, 0))

    def until_waiting(self, rows):
        """Let the server come to where a test wants it."""
        for _ in range(1000):
            if self.metric("distillkit_waiting_rows") == rows:
                return
            time.sleep(0.01)
        raise AssertionError(f"{self.metric('distillkit_waiting_rows')} rows wait, not {rows}")

    @contextmanager
    def counting(self, **wanted):
        """Hold what is counted meanwhile against what should be."""
        names = {
            "batches": "distillkit_batch_rows_count",
            "rows": "distillkit_batch_rows_sum",
            "busy": 'distillkit_requests_total{path="/predict",status="503"}',
            "hung_up": 'distillkit_requests_total{path="/predict",status="499"}',
        }
        before = {name: self.metric(names[name]) for name in wanted}
        yield
        assert {name: self.metric(names[name]) - before[name] for name in wanted} == wanted

    def raw(self, data=b""):
        place = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        place.sendall(data)
        return place


@contextmanager
def running(bundle, *options):
    command = [sys.executable, "-c", MAIN, TRAINING, "serve", str(bundle), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        address = r"http://127.0.0.1:(\d+)/predict; Ctrl-C stops it"
        found = re.fullmatch(rf"distillkit: {re.escape(str(bundle))} answers at {address}\n", line)
        assert found, line
        yield Client(process, int(found[1]))
        process.terminate()
        assert process.communicate(timeout=60)[1] == ""  # nor has it said anything all the time
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def client(bundle):
    with running(bundle, "--batch-wait-ms", "0", "--max-rows", "8", "--max-body-kb", "8") as client:
        yield client


@pytest.fixture(scope="module")
def patient(bundle):
    """A server that waits for a batch of 8 rows, and lets no more than 8 wait."""
    options = "--threads 1 --batch-rows 8 --batch-wait-ms 60000 --max-rows 8 --max-waiting 8"
    with running(bundle, *options.split()) as client:
        yield client


def _same(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours["label"] == theirs["label"]
        assert ours["probabilities"] == pytest.approx(theirs["probabilities"], abs=1e-6)


def test_answers_are_the_predictors(client, bundle):
    predictor = Predictor(bundle)
    status, said = client.predict(texts=TEXTS)
    assert (status, list(said)) == (200, ["answers"])
    wanted = predictor.predict(TEXTS)
    _same(said["answers"], wanted)
    answers = client.predict(texts=TEXTS, text_pairs=TEXTS[::-1])[1]["answers"]
    _same(answers, predictor.predict(TEXTS, TEXTS[::-1]))
    assert client.predict(texts=[]) == (200, {"answers": []})
    assert client.predict(texts=[], text_pairs=[]) == (200, {"answers": []})
    body = json.dumps({"texts": TEXTS}).encode()
    status, said = client.ask(body=iter([body[:9], body[9:]]))  # in chunks
    assert status == 200
    _same(json.loads(said)["answers"], wanted)


def test_it_says_what_it_serves_and_counts(client):
    status, said = client.ask("GET", "/")
    about = json.loads(said)
    assert (status, about["task"], about["max_rows"]) == (200, "classification", 8)
    assert about["labels"] == ["negative", "positive"]
    assert client.ask("GET", "/health") == (200, b'{"status":"ready"}')
    counts = {
        'distillkit_requests_total{path="/predict",status="200"}': 1,
        'distillkit_requests_total{path="other",status="404"}': 1,
        "distillkit_rows_total": 2,
        "distillkit_request_seconds_count": 1,
        "distillkit_batch_rows_count": 1,
        "distillkit_batch_rows_sum": 2,
    }
    before = {name: client.metric(name) for name in counts}
    client.predict(texts=["good", "bad"])
    assert client.ask("GET", "/elsewhere") == (404, b'{"error":"Not Found"}')
    assert {name: client.metric(name) - before[name] for name in counts} == counts
    assert client.metric("distillkit_waiting_rows") == 0
    assert client.metric("process_resident_memory_bytes") > 1e7


TEXT, STRINGS = "expected a string", "expected a list of strings"
REFUSED = [
    (b"", 400, "body: not JSON"),
    (b"{", 400, "body: not JSON"),
    (b'{"texts": ["a"]} x', 400, "body: not JSON"),
    (b'\xef\xbb\xbf{"texts": ["a"]}', 400, "body: not JSON"),
    ('{"texts": ["a"]}'.encode("utf-16"), 400, "body: byte 1 is not UTF-8"),
    (b'{"texts": ["a\xff"]}', 400, "body: byte 14 is not UTF-8"),
    (b'{"texts": ["a\0"]}', 400, "body: not JSON"),
    (b"[" * 4000, 400, "body: n"),  # nested too deeply, or not JSON: each Python has its limit
    (b'{"a":' * 800, 400, "body: no"),
    (b'{"texts": NaN}', 400, "NaN is none of its numbers"),
    (b'{"texts": ["a"], "texts": ["b"]}', 400, "body: a key stands twice in one object"),
    (b'{"texts": [{"a": 1, "a": 2}]}', 400, "body: a key stands twice in one object"),
    (b"[]", 422, "body: expected an object"),
    (b'"texts"', 422, "body: expected an object"),
    (b"{}", 422, f"texts: {STRINGS}"),
    (b'{"texts": "a"}', 422, f"texts: {STRINGS}"),
    (b'{"texts": null}', 422, f"texts: {STRINGS}"),
    (b'{"texts": ["a", 1' + b"0" * 5000 + b"]}", 422, f"texts[1]: {TEXT}"),
    (b'{"texts": ["a", 1e999]}', 422, f"texts[1]: {TEXT}"),
    (b'{"texts": ["a"], "text_pairs": [["b"]]}', 422, f"text_pairs[0]: {TEXT}"),
    (b'{"texts": ["a"], "text_pairs": null}', 422, f"text_pairs: {STRINGS}"),
    (b'{"texts": ["a"], "text_pairs": []}', 422, "0 of them, and 1 texts; expected as many"),
    (b'{"texts": ["a"], "text_pairs": ["b", "c"]}', 422, "text_pairs: 2 of them, and 1 texts"),
    (b'{"texts": ["a"], "top_k": 3}', 422, '"top_k": no such key; expected texts'),
    (rb'{"texts": ["a"], "\ud800": 3}', 422, r'"\ud800": no such key'),
    (rb'{"texts": ["a", "b\ud800"]}', 422, "texts[1]: character 2 is half of a surrogate pair"),
    (json.dumps({"texts": ["a"] * 9}).encode(), 413, "texts: 9 rows, and --max-rows allows 8"),
    (json.dumps({"texts": ["a" * 8192]}).encode(), 413, "body: longer than the 8192 bytes"),
]


def test_what_is_not_as_agreed_is_refused_in_a_line(client):
    for body, status, reason in REFUSED:
        found, said = client.ask(body=body)
        assert (found, list(json.loads(said))) == (status, ["error"]), body
        line = json.loads(said)["error"]
        assert reason in line
        assert "\n" not in line
    for headers, status in [
        ({}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/json; charset=latin-1"}, 415),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
        ({"Content-Type": 'Application/JSON; charset="UTF-8"'}, 200),
    ]:
        assert client.ask(body=b'{"texts": ["a"]}', headers=headers)[0] == status, headers


def test_other_methods_and_paths_are_refused(client):
    assert client.ask("GET", "/predict") == (405, b'{"error":"Method Not Allowed"}')
    assert client.headers["Allow"] == "POST"
    assert client.ask("POST", "/health")[0] == 405
    for path in ("/predict/", "/health/", "//predict"):
        assert client.ask("POST", path) == (404, b'{"error":"Not Found"}')


def test_a_name_that_was_resolved_to_this_machine_is_refused(client):
    port = client.port
    for host, status in [
        (f"127.0.0.1:{port}", 200),
        ("localhost", 200),
        (f"[::1]:{port}", 200),
        (f"evil.example:{port}", 403),
        ("localhost.evil.example", 403),
        ("localhost@evil.example", 403),
        ("", 403),
    ]:
        assert client.ask("GET", "/health", headers={"Host": host})[0] == 200  # as probes ask
        found, said = client.ask("GET", "/", headers={"Host": host})
        assert found == status, host
    assert b"Host: '' is not this service's name; --allowed-hosts adds names" in said


def test_with_a_token_only_who_bears_it_is_answered(bundle, monkeypatch):
    monkeypatch.setenv("DISTILLKIT_TOKEN", "sécret")
    with running(bundle, "--allowed-hosts", "mine.example") as client:
        body = b'{"texts": ["a"]}'
        for borne, status in [
            ({}, 401),
            ({"Authorization": "Bearer"}, 401),
            ({"Authorization": "Bearer sécret".encode("latin-1")}, 401),
            ({"Authorization": "Bearer sécret".encode()}, 200),
            ({"Authorization": "Bearer sécret".encode(), "Host": "mine.example"}, 200),
        ]:
            headers = {"Content-Type": "application/json", **borne}
            assert client.ask(body=body, headers=headers)[0] == status, borne
        assert client.ask("GET", "/metrics")[0] == 401
        assert client.ask("GET", "/health")[0] == 200


HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def _status(place):
    with place.makefile("rb") as answer:
        return int(answer.readline().split()[1])


def test_a_body_is_refused_before_it_has_come(client):
    with client.raw(HEAD + b"Content-Length: 8193\r\n\r\n") as place:  # and not a byte of it
        assert _status(place) == 413
    chunked = b"Transfer-Encoding: chunked\r\n\r\n"
    with client.raw(HEAD + chunked + (b"800\r\n" + b" " * 2048 + b"\r\n") * 5) as place:
        assert _status(place) == 413  # without an end
    with client.raw(HEAD.replace(b"json", b"xml") + chunked) as place:
        assert _status(place) == 415
        place.sendall(b"no chunk\r\n")  # after the answer, which cannot be taken back
        while place.recv(4096):
            pass


def test_a_model_of_single_texts_takes_no_pairs(bundle, tmp_path):
    copy = shutil.copytree(bundle, tmp_path / "bundle")
    cascade = {"temperature": 1.0, "threshold": 2.0}  # which no answer reaches
    change_manifest(copy, pairs=False, cascade=cascade)
    with running(copy, "--teacher", str(bundle)) as client:
        line = "text_pairs: this model answers single texts: leave text_pairs out"
        assert client.predict(texts=["a"], text_pairs=["b"]) == (422, {"error": line})
        assert client.predict(texts=["a"])[1]["answers"][0]["by"] == "teacher"


def test_requests_at_once_share_a_call(patient, bundle):
    words = ["good", "bad", "great", "awful", "fine", "dull", "bright", "weak"]
    texts = [f"the film was {word} ." for word in words]
    with patient.counting(batches=1, rows=8), ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: patient.predict(texts=[text]), texts))
    assert [status for status, _ in found] == [200] * 8
    _same([said["answers"][0] for _, said in found], Predictor(bundle).predict(texts))


def test_past_its_limit_it_refuses_and_recovers(patient):
    with patient.counting(busy=1, rows=16), ThreadPoolExecutor(1) as pool:
        first = pool.submit(Client(None, patient.port).predict, texts=["a"] * 7)
        patient.until_waiting(7)
        assert patient.predict(texts=["a"] * 2)[0] == 503
        assert patient.headers["Retry-After"] == "1"
        assert patient.ask("GET", "/health")[0] == 200
        assert patient.predict(texts=["a"])[0] == 200  # the eighth: both are answered
        assert len(first.result()[1]["answers"]) == 7
        assert patient.predict(texts=["a"] * 8)[0] == 200


def test_requests_that_are_still_coming_are_limited_too(patient):
    body = b'{"texts": ["a"]}'
    with patient.counting(busy=1, batches=1):
        begun = [patient.raw(HEAD + b"Content-Length: %d\r\n\r\n" % len(body)) for _ in range(8)]
        # once all have been seen
        assert any(patient.predict(texts=[])[0] == 503 for _ in range(100))
        for place in begun:
            place.sendall(body)
        assert [_status(place) for place in begun] == [200] * 8
        assert patient.predict(texts=[])[0] == 200
    for place in begun:
        place.close()


def test_who_hangs_up_gives_his_place_back(patient):
    body = json.dumps({"texts": ["a"] * 7}).encode()
    with patient.counting(hung_up=1, rows=8):
        place = patient.raw(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        patient.until_waiting(7)
        place.close()
        patient.until_waiting(0)
        assert patient.predict(texts=["a"] * 8)[0] == 200


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_it_answers_what_it_has_and_ends_well(bundle, number):
    body = b'{"texts": ["a"]}'
    with running(bundle, "--batch-wait-ms", "1000") as client:
        with client.raw(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body) as waits:
            client.until_waiting(1)
            comes = client.raw(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body[:5])
            client.metric("distillkit_rows_total")  # both are in
            client.process.send_signal(number)
            for _ in range(1000):
                try:
                    client.raw().close()
                except ConnectionError:
                    break
                time.sleep(0.01)
            with pytest.raises(ConnectionRefusedError):
                client.raw()
            comes.sendall(body[5:])
            assert (_status(waits), _status(comes)) == (200, 200)
            comes.close()
        assert client.process.wait(20) == 0
        assert json.loads(client.process.stdout.read()) == {"requests": 2, "rows": 2}
        assert client.process.stderr.read() == ""


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["texts", "text_pairs", "x"]), inner)
    ),
    max_leaves=10,
)
EXAMPLES = int(os.environ.get("DISTILLKIT_EXAMPLES", 100))  # a test
VALID = b'{"texts": ["the film was good .", "bad"], "text_pairs": ["a", "\\u00e9"]}'
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(VALID) + VALID


def _spoilt(whole):
    """Bytes with a part cut out and another put in its place."""
    places = st.tuples(st.integers(0, len(whole)), st.integers(0, 9), st.binary(max_size=9))
    return places.map(lambda cut: whole[: cut[0]] + cut[2] + whole[cut[0] + cut[1] :])


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    body=st.binary(max_size=200)
    | _spoilt(VALID)
    | JSON.map(lambda value: json.dumps(value).encode())
)
def test_no_body_is_more_than_refused(client, body):
    status, said = client.ask(body=body)
    assert status in (200, 400, 413, 422)
    assert list(json.loads(said)) == (["answers"] if status == 200 else ["error"])


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(min_size=1, max_size=200) | _spoilt(WHOLE))
def test_no_bytes_are_more_than_refused(client, data):
    with client.raw(data) as place:
        place.shutdown(socket.SHUT_WR)
        said = place.makefile("rb").read()
    assert said == b"" or re.match(rb"HTTP/1.1 (?!500)[1-4]\d\d ", said), said


def test_after_all_that_it_still_answers(client, bundle):
    _same(client.predict(texts=TEXTS)[1]["answers"], Predictor(bundle).predict(TEXTS))
    assert client.metric("distillkit_waiting_rows") == 0
    assert client.metric('distillkit_requests_total{path="/predict",status="500"}') == 0


LIMITS = Limits(
    threads=1, batch_rows=8, batch_wait_ms=0.0, max_rows=8, max_body_kb=4, max_waiting=8
)


@pytest.mark.parametrize("sent", [b"", b"POST /pre", HEAD + b"Content-Length: 9\r\n\r\n{"])
def test_who_sends_too_slowly_is_sent_away(bundle, monkeypatch, sent):
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 0.2)
    whole = HEAD + b"Content-Length: 16\r\n\r\n" + b'{"texts": ["a"]}'

    async def talk(port):
        read, write = await asyncio.open_connection("127.0.0.1", port)
        silent, other = await asyncio.open_connection("127.0.0.1", port)
        write.write(whole)  # one in time, whose answer may take longer
        assert (await read.readline()).split()[1] == b"200"
        write.write(sent)
        # to its end; sooner than an idle connection's
        said = await asyncio.wait_for(read.read(), 3)
        assert said.count(b"HTTP/1.1") == 0
        assert await asyncio.wait_for(silent.read(), 3) == b""
        write.close()
        other.close()

    async def both():
        service = Service(Predictor(bundle), replace(LIMITS, batch_wait_ms=500.0))
        options = {"http": server._Protocol, "lifespan": "on", "log_config": None}
        config = server.uvicorn.Config(service, **options)
        with server._listening("127.0.0.1", 0) as listener:
            host = server._Server(config, service, lambda address: None)
            serving = asyncio.create_task(host.serve([listener]))
            await talk(listener.getsockname()[1])
            host.handle_exit(signal.SIGTERM, None)
            await serving
        assert service.stopping

    asyncio.run(both())


def _batcher(predict, **values):
    counted, characters = [], values.pop("batch_characters", 100)
    limits = replace(LIMITS, **({"batch_wait_ms": 1.0, "max_waiting": 20} | values))
    return Batcher(predict, limits, batch_characters=characters, count=counted.append), counted


def _answers(batcher, *asked):
    async def all_at_once():
        await batcher.start()
        try:
            return await asyncio.gather(
                *(batcher.ask(*rows) for rows in asked), return_exceptions=True
            )
        finally:
            await batcher.stop()

    return asyncio.run(all_at_once())


def _upper(texts, pairs):
    if "bad" in texts:
        raise ValueError("bad")
    return [{"said": text.upper() + (pairs[i] if pairs else "")} for i, text in enumerate(texts)]


def test_who_is_to_blame_for_an_error_fails_alone():
    batcher, counted = _batcher(_upper)
    good, bad, last = _answers(batcher, (["a", "b"], None), (["bad"], None), (["c"], None))
    assert (good, last) == ([{"said": "A"}, {"said": "B"}], [{"said": "C"}])
    assert str(bad) == "bad"
    assert counted == [4, 2, 1, 1]


def test_batches_are_of_whole_requests_of_a_kind_and_bounded():
    batcher, counted = _batcher(_upper)
    asked = [(["a"] * 3, None), (["b"] * 5, None), (["c"], None)]
    asked += [(["d"], ["1"]), (["e"], ["2"]), (["f" * 99], ["3"])]
    found = _answers(batcher, *asked, (["g"], ["4"]))
    wanted = [_upper(*rows) for rows in asked] + [[{"said": "G4"}]]
    assert found == wanted
    assert counted == [8, 1, 2, 1, 1]
    batcher, counted = _batcher(_upper, batch_rows=2, batch_characters=1)
    assert len(_answers(batcher, (["long"] * 9, None))[0]) == 9  # one request alone is never cut
    assert counted == [9]


def test_what_a_full_call_leaves_waits_for_one_of_its_own():
    batcher, counted = _batcher(_upper, threads=2, batch_wait_ms=60000.0)

    async def ask():
        await batcher.start()
        asked = [asyncio.ensure_future(batcher.ask(["a"] * 4, None)) for _ in range(3)]
        await asyncio.gather(*asked[:2])
        await asyncio.wait_for(asyncio.gather(asked[2], batcher.ask(["b"] * 4, None)), 20)
        await batcher.stop()

    asyncio.run(ask())
    assert counted == [8, 8]


def test_every_thread_still_answers_after_one_has_taken_all_that_came():
    together = threading.Barrier(2, timeout=20)

    def meeting(texts, pairs):
        if "meet" in texts:
            together.wait()
        return _upper(texts, pairs)

    batcher, counted = _batcher(meeting, threads=2, batch_rows=1, batch_wait_ms=0.0)

    async def ask():
        await batcher.start()
        await batcher.ask(["alone"], None)
        found = await asyncio.gather(*(batcher.ask(["meet"], None) for _ in range(2)))
        await batcher.stop()
        return found

    assert asyncio.run(ask()) == [[{"said": "MEET"}]] * 2
    assert counted == [1, 1, 1]


def test_who_hangs_up_while_he_is_answered_harms_nobody():
    begun, go = threading.Event(), threading.Event()

    def held(texts, pairs):
        begun.set()
        go.wait(20)
        return _upper(texts, pairs)

    batcher, counted = _batcher(held, batch_rows=2)

    async def ask():
        await batcher.start()
        gone, stays = (asyncio.ensure_future(batcher.ask([text], None)) for text in "ab")
        await asyncio.to_thread(begun.wait, 20)
        gone.cancel()
        await asyncio.sleep(0)
        go.set()
        found = [await asyncio.wait_for(asked, 20) for asked in (stays, batcher.ask(["c"], None))]
        await batcher.stop()
        return found

    assert asyncio.run(ask()) == [[{"said": "B"}], [{"said": "C"}]]
    assert counted == [2, 1]


def test_rows_beyond_the_queue_are_refused_and_the_others_answered():
    batcher, _ = _batcher(_upper, max_waiting=3)
    first, second, third = _answers(batcher, (["a"] * 2, None), (["b"] * 2, None), (["c"], None))
    assert isinstance(second, QueueFull)
    assert (first, third) == ([{"said": "A"}] * 2, [{"said": "C"}])


def test_a_failure_of_the_model_is_a_500_in_json_and_in_the_log(bundle):
    class Broken(Predictor):
        def predict(self, texts, text_pairs=None):
            raise ZeroDivisionError

    line = "this request could not be answered; the server's log says why"
    broken = Broken(bundle)
    with TestClient(Service(broken, LIMITS), raise_server_exceptions=False) as client:
        answer = client.post("/predict", json={"texts": ["a"]})
    assert (answer.status_code, answer.json()) == (500, {"error": line})
    with TestClient(Service(broken, LIMITS)) as client, pytest.raises(ZeroDivisionError):
        client.post("/predict", json={"texts": ["a"]})


def test_logits_that_are_no_numbers_are_a_500_and_the_service_goes_on(damaged, capsys):
    line = "the model has no answer: a logit is not finite, or its graph failed; export it again"
    with TestClient(Service(Predictor(damaged / "bundle"), LIMITS)) as client:
        answer = client.post("/predict", json={"texts": ["awful"]})
        assert (answer.status_code, answer.json()) == (500, {"error": line})
        assert capsys.readouterr().err == f"distillkit: {line}\n"
        assert client.post("/predict", json={"texts": ["good"]}).status_code == 200


def test_wrong_options_are_one_line(bundle, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", str(bundle), "--port", port]) == 1
    assert re.fullmatch(
        rf"distillkit: --host 127.0.0.1 --port {port}: cannot listen there \(.*\); choose another\n",
        capsys.readouterr().err,
    )
    for options, line in [
        (["--port", "99999"], "--port 99999: cannot listen there"),
        (["--batch-rows", "0"], "--batch-rows 0: expected at least 1"),
        (["--batch-wait-ms", "nan"], "--batch-wait-ms nan: expected at least 0"),
        (["--max-rows", "2000"], "so many could never wait, --max-waiting is 1024"),
        (["--teacher", str(bundle)], "no threshold says when to ask a teacher"),
    ]:
        assert main(["serve", str(bundle), *options]) == 1
        said = capsys.readouterr().err
        assert line in said
        assert said.count("\n") == 1
    assert main(["serve", str(bundle.parent)]) == 1
    assert "no manifest.json" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "prometheus_client", "onnxruntime"])
def test_what_is_missing_is_said_with_the_mend(bundle, missing):
    command = [sys.executable, "-c", MAIN, missing, "serve", str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"distillkit: serve needs {missing}: pip install 'distillkit[serve]'\n"


def test_a_service_refuses_foreign_text_and_gives_label_sets_when_it_is_started_so(
    bundle, tmp_path
):
    copy = shutil.copytree(bundle, tmp_path / "bundle")
    rule = {"weights": {"the": 3.0}, "rare": -1.0, "threshold": 0.0}
    change_manifest(copy, rejection=rule, coverage={"0.90": 0.0})
    options = {"reject": True, "coverage": 0.9}
    with TestClient(Service(Predictor(copy), LIMITS, options=options)) as client:
        texts = ["the film", "a plot is weak"]
        first, second = client.post("/predict", json={"texts": texts}).json()["answers"]
        assert (first["rejected"], first["labels"]) == (False, ["negative", "positive"])
        assert (second["rejected"], second["label"]) == (True, None)
        assert client.get("/").json().items() >= options.items()
