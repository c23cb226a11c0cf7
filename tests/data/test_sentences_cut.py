"""Documents cut into sentences."""

import pytest

from distillkit.data.sentences import sentences_of


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        (
            "It was good. I liked it! Did you? Yes",
            ["It was good.", "I liked it!", "Did you?", "Yes"],
        ),
        ("mr. Lee and Dr. No met J. R. Smith, e.g. in the U.S. navy, etc. and left.", None),
        (
            "No. I saw No. 5. So did I. It isn't. OK",
            ["No.", "I saw No. 5.", "So did I.", "It isn't.", "OK"],
        ),
        ("It cost $3.50 in 1.5 hours.", None),
        ("Well... maybe it was . . . fine.", None),
        ("It was... It ended.", ["It was...", "It ended."]),
        (
            '"What?" he said. "No!" She left (at once.) Then',
            ['"What?" he said.', '"No!"', "She left (at once.)", "Then"],
        ),
        (
            "great movie! i loved it. really?! yes.",
            ["great movie!", "i loved it.", "really?!", "yes."],
        ),
        ("One<br /><br>Two </p> Three\n\nFour\nfive", ["One", "Two", "Three", "Four five"]),
        ("这部电影很好。真的！“不错。”他说", ["这部电影很好。", "真的！", "“不错。”", "他说"]),
        ("  white \t space  ", ["white space"]),
        (" \n ", []),
        ("", []),
    ],
)
def test_a_document_is_cut_at_the_ends_of_sentences_and_nowhere_else(text, cut):
    assert sentences_of(text) == ([text] if cut is None else cut)


def test_nothing_but_white_space_and_tags_is_lost():
    text = 'A "b." c?! D... e ... F. (g.) H<br/>i 3.5.   J.'
    assert "".join("".join(sentences_of(text)).split()) == "".join(
        text.replace("<br/>", "").split()
    )
