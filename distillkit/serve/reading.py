"""Read requests strictly: anything else than the agreed JSON is refused with one line."""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import Request

_KEYS = ("texts", "text_pairs")


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Read a request's body, and no more of it than may be, sent whole or in chunks.

    Raises:
        HTTPException: 413, it is longer; 415, it does not say that it is plain JSON.
        starlette.requests.ClientDisconnect: The client hung up.
    """
    media, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    charset = parameters.replace(" ", "").replace('"', "")
    # A page of another site can make a browser send text/plain or a form, but not this.
    if media.strip() != "application/json" or charset not in ("", "charset=utf-8"):
        raise HTTPException(415, "Content-Type: expected application/json, in UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, "Content-Encoding: expected none; bodies are not unpacked")
    too_long = HTTPException(
        413,
        f"body: longer than the {max_bytes} bytes that --max-body-kb allows; send fewer rows at once",
    )
    if int(request.headers.get("content-length", 0)) > max_bytes:  # the HTTP parser checks digits
        raise too_long
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise too_long
    return bytes(body)


def read_rows(body: bytes, max_rows: int, pairs: bool | None) -> tuple[list[str], list[str] | None]:
    """Read the texts, or pairs, of a body: N texts, and N second texts or None.

    Args:
        body: `{"texts": [...]}`, or `{"texts": [...], "text_pairs": [...]}`.
        max_rows: Of a request.
        pairs: Whether the model answers pairs, single texts, or (None) either.

    Raises:
        HTTPException: 400, it is no JSON; 422, it is JSON of another shape; 413, it has more rows.
    """
    asked = _parsed(body)
    if not isinstance(asked, dict):
        raise HTTPException(422, 'body: expected an object, {"texts": [...]}')
    for key in asked:
        if key not in _KEYS:
            said = f"{json.dumps(key)[:60]}: no such key"
            raise HTTPException(422, f"{said}; expected texts, and text_pairs for pairs")
    texts = _strings(asked, "texts", max_rows)
    second = _strings(asked, "text_pairs", max_rows) if "text_pairs" in asked else None
    if second is not None and len(second) != len(texts):
        raise HTTPException(
            422, f"text_pairs: {len(second)} of them, and {len(texts)} texts; expected as many"
        )
    if pairs is not None and pairs != (second is not None):
        wanted = "single texts: leave text_pairs out"
        wanted = "pairs: give texts and text_pairs" if pairs else wanted
        raise HTTPException(422, f"text_pairs: this model answers {wanted}")
    return texts, second


def _parsed(body: bytes) -> Any:
    try:
        # No number is ever wanted, so none is computed: one of a million digits costs nothing.
        return json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_once,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_constant,
        )
    except UnicodeDecodeError as error:
        raise HTTPException(
            400, f"body: byte {error.start + 1} is not UTF-8; send JSON in UTF-8"
        ) from None
    except RecursionError:
        raise HTTPException(400, 'body: nested too deeply; expected {"texts": [...]}') from None
    except ValueError as error:
        raise HTTPException(400, f"body: not JSON: {error}") from None


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):  # one reader would take the first, another the last
        raise HTTPException(400, "body: a key stands twice in one object")
    return found


def _number(digits: str) -> float:
    return 0.0


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is none of its numbers")


def _strings(asked: dict[str, Any], key: str, max_rows: int) -> list[str]:
    found = asked.get(key)
    if not isinstance(found, list):
        raise HTTPException(422, f"{key}: expected a list of strings")
    if len(found) > max_rows:
        raise HTTPException(
            413, f"{key}: {len(found)} rows, and --max-rows allows {max_rows}; send them in parts"
        )
    for number, text in enumerate(found):
        if not isinstance(text, str):
            raise HTTPException(422, f"{key}[{number}]: expected a string")
        try:
            text.encode()
        except UnicodeEncodeError as error:  # JSON can hold half a pair, which no tokenizer reads
            said = f"character {error.start + 1} is half of a surrogate pair"
            raise HTTPException(422, f"{key}[{number}]: {said}") from None
    return found
