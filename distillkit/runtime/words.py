"""What a word is, said once: students, augmenter and explanations cut text alike."""

import re
from collections.abc import Sequence

# A run of letters and digits with inner apostrophes (isn't), an English clitic that stands alone as
# in Penn tokens ('s, n't), or one other sign. Combining marks (\p{M}) belong to the word; both
# regular-expression engines that read this pattern agree on it.
WORD_PATTERN = r"[\w\p{M}]+(?:['’][\w\p{M}]+)*|['’](?:s|re|ve|ll|d|m|t)\b|[^\w\s\p{M}]"
# A run of Latin letters and digits, or one character of anything else: for scripts written without
# spaces.
CHARACTER_PATTERN = r"[A-Za-z0-9]+|[^\s]"

# Thai, Lao, Myanmar and Khmer; kana; Han.
UNSEGMENTED = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
)


def is_unsegmented(texts: Sequence[str]) -> bool:
    """Say whether most letters of some texts, evenly spaced, are of a script without spaces."""
    return share_of(re.compile(UNSEGMENTED), texts) > 0.5


def share_of(script: re.Pattern[str], texts: Sequence[str]) -> float:
    """Return a script's share, 0 to 1, of the letters of 1,000 to 2,000 texts, evenly spaced."""
    step = max(1, len(texts) // 1000)
    sample = "".join(texts[i] for i in range(0, len(texts), step))
    letters = sum(character.isalpha() for character in sample)
    return len(script.findall(sample)) / max(letters, 1)
