"""A model service on this machine that answers by a rule, and fails as it is told to."""

import json
import math
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

KEY = "sk-secret-of-the-test"
WORDS = {"good": 2.0, "great": 3.0, "fine": 1.0, "bright": 1.5}
WORDS |= {
    word: -value
    for word, value in zip(("bad", "awful", "dull", "weak"), WORDS.values(), strict=True)
}


def text_of(prompt):
    """The text, or both texts, that a default prompt asks about."""
    first = "First text: " if "First text: " in prompt else "Text: "
    return prompt.rpartition(first)[2].removesuffix("\nLabel:").replace("\nSecond text: ", " ")


def served(text, classes=2):
    """Log-probabilities of the letters A, B, ... by the text's words."""
    score = sum(value for word, value in WORDS.items() if word in text.split())
    scores = [-score * i for i in range(classes)]
    total = math.log(sum(map(math.exp, scores)))
    return [score - total for score in scores]


class FaultServer:
    """Speaks both apis.

    Attributes:
        mode: How calls are answered.
        faults: How the first calls are answered, one each, before `mode` counts.
        asked: Answered calls by the text that they are about.
        calls: All calls.
        tokens: Those of answered calls.
    """

    def __init__(self):
        self.mode, self.classes, self.faults = "logprobs", 2, []
        self.delay, self.late = 0.0, 1.5  # seconds until an answer; until one that is too late
        self.most_top, self.key = 20, KEY
        self.asked, self.calls, self.tokens, self.bodies = Counter(), 0, 0, []
        self.characters = 3  # a token
        self.at_once = self.most_at_once = 0
        self.lock, self.distribution = threading.Lock(), served
        self.times = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    @contextmanager
    def running(self):
        handler = type("Handler", (_Handler,), {"owner": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    def settle(self):
        """Wait until no call is under way."""
        time.sleep(0.2)
        while self.at_once:
            time.sleep(0.005)

    def reply(self, body, mode):
        """Return the answer to one call."""
        chat = "messages" in body
        prompt = body["messages"][0]["content"] if chat else body["prompt"]
        values = self.distribution(text_of(prompt), self.classes)
        likeliest = sorted(zip("ABCDEFGH", values, strict=False), key=lambda one: -one[1])
        text = {
            "echo": prompt[:40],
            "name": ("positive", "negative", "", "")[values.index(max(values))],
        }.get(mode, likeliest[0][0])
        used = {"prompt_tokens": len(prompt) // self.characters, "completion_tokens": 1}
        with self.lock:
            self.asked[text_of(prompt)] += 1
            self.tokens += sum(used.values())
        top = min(body.get("top_logprobs", 0) if chat else body.get("logprobs", 0), self.most_top)
        if mode == "top-2":
            top = 2
        shown = likeliest[:top]
        found = {}
        if mode in ("logprobs", "top-2", "no-usage") and top:
            found = {"logprobs": _chat(shown) if chat else _completion(shown)}
        choice = {"message": {"content": text}} if chat else {"text": text}
        answer = {"choices": [{**choice, **found}]}
        return answer if mode == "no-usage" else answer | {"usage": used}


def _chat(shown):
    tokens = [{"token": token, "logprob": value} for token, value in shown]
    # A blank first token, as many models begin with one.
    blank = {"token": "\n", "logprob": -0.01, "top_logprobs": [{"token": "\n", "logprob": -0.01}]}
    return {"content": [blank, {**tokens[0], "top_logprobs": tokens}]}


def _completion(shown):
    tops = {f" {token}": value for token, value in shown}
    token, value = next(iter(tops.items()))
    return {"tokens": [token], "token_logprobs": [value], "top_logprobs": [tops]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: the other side waits 40 ms for a second one
    owner: FaultServer

    def do_POST(self):
        owner = self.owner
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with owner.lock:
            owner.calls += 1
            owner.bodies.append((self.path, body))
            owner.times.append(time.monotonic())
            owner.at_once += 1
            owner.most_at_once = max(owner.most_at_once, owner.at_once)
            mode = owner.faults.pop(0) if owner.faults else owner.mode
        try:
            self._serve(owner, body, mode)
        finally:
            with owner.lock:
                owner.at_once -= 1

    def _serve(self, owner, body, mode):
        if owner.key and self.headers.get("Authorization") != f"Bearer {owner.key}":
            said = f"Incorrect API key provided: {self.headers.get('Authorization')}"
            return self._send(401, {"error": {"message": said}})
        if mode in _REFUSALS:
            status, said, headers = _REFUSALS[mode]
            return self._send(status, said, headers)
        top = body.get("top_logprobs", 0)
        if top > owner.most_top:
            said = f"top_logprobs must be at most {owner.most_top}"
            return self._send(400, {"error": {"message": said}})
        time.sleep(owner.late if mode == "time-out" else owner.delay)
        answer = owner.reply(body, mode)
        if mode == "wrong-json":
            answer = {"object": "nothing of use"}
        data = json.dumps(answer).encode()
        self._write(200, data[: len(data) // 2] if mode == "cut" else data, len(data), {})
        if mode == "cut":
            self.close_connection = True
        return None

    def _send(self, status, said, headers=()):
        data = json.dumps(said).encode()
        self._write(status, data, len(data), dict(headers))

    def _write(self, status, data, length, headers):
        try:
            self.send_response(status)
            for name, value in ({"Content-Length": length} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
        except OSError:  # the other side has gone
            self.close_connection = True

    def log_message(self, *_):
        pass


_REFUSALS = {
    "429": (429, {"error": {"message": "slow down"}}, {"Retry-After": "0.3"}),
    "500": (500, {"error": {"message": "no\nluck"}}, {}),
    "400": (400, {"error": {"message": "too long"}}, {}),
    "403": (403, {"detail": "not for you"}, {}),
    "404": (404, {"error": {"message": "The model `gone` does not exist."}}, {}),
    "no-logprobs": (403, {"error": {"message": "You may not ask this model for logprobs"}}, {}),
    "few": (422, {"error": "Input validation error: `top_n_tokens` must be at most 5"}, {}),
    "new-model": (400, {"error": {"message": "Use 'max_completion_tokens' instead."}}, {}),
}


@pytest.fixture
def server(monkeypatch):
    """A service that is answering; waits between calls are short."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("distillkit.teacher.endpoint.asker.FIRST_WAIT", 0.01)
    with FaultServer().running() as running:
        yield running
