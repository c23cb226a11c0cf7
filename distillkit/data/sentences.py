"""Where a sentence ends."""

import regex

_BREAK = regex.compile(r"<br\s*/?>|</?p>|\n\s*\n", regex.IGNORECASE)
_CLOSING = r"""["'”’»)\]]"""
# After these, or an initial, a full stop ends no sentence; nor before a number after the next.
_ABBREVIATED = (
    r"(?<!\b(?i:mr|mrs|ms|dr|prof|sr|jr|st|mt|gen|col|sgt|capt|lt|rev|hon|gov|sen|rep|vs|etc|al|approx|dept|inc|co|ltd|corp|e\.g|i\.e)"
    r"|(?<![\w'’])(?!I)\p{Lu})"
)
_NUMBERED = r"(?!(?<=\b(?i:no|vol|fig)\.)\s+\p{N})"
_END = regex.compile(
    # Three dots, or an end inside quotation marks, may stand within a sentence: a small letter goes
    # on with it.
    rf"(?:\.(?:\s?\.)++|…){_CLOSING}*+(?=\s+\P{{Ll}})"
    rf"|(?:[!?][!?.]*|{_ABBREVIATED}(?<!\.\s?)\.(?!\s?\.){_NUMBERED})(?:(?=\s)|{_CLOSING}+(?=\s+\P{{Ll}}))"
    r"|[。！？]+[”’」』）】]*"
)


def sentences_of(text: str) -> list[str]:
    """Cut a document at the ends of its sentences, white space made single spaces.

    >>> sentences_of("Mr. Lee paid $3.50. Why? He saw it ...  twice!<br />So did I")
    ['Mr. Lee paid $3.50.', 'Why?', 'He saw it ... twice!', 'So did I']
    """
    parts = (" ".join(part.split()) for part in _BREAK.split(text))
    return [
        sentence
        for part in parts
        for piece in _END.sub("\\g<0>\n", part).split("\n")
        if (sentence := piece.strip())
    ]
