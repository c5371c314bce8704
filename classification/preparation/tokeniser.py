"""The one tokeniser of the classification data: deterministic, without a model.

- HTML entities are resolved and ``<br />`` is a space; Unicode is normalised (NFC); all is
lower-cased.
- A word is a run of letters and digits; hyphens and apostrophes inside it belong to it
  (``bug-eyed``, ``o'brien``), and so do the points of an abbreviation (``u.s.``).
- Contractions are cut as in the Penn Treebank, which SST and the common word vectors follow:
  ``don't`` -> ``do n't``, ``it's`` -> ``it 's``, ``we'll`` -> ``we 'll``.
- Numbers are kept, with the points and commas inside them (``1,000.50``, ``1930s``).
- Every other mark is a token of its own; of a repeated ``. ! ? - * = ~ _`` a run of up to three is
  one (``...``, ``--``, ``!!!``). Curly and Treebank quotes become straight ones.

The tokens of tokens joined by spaces are the same tokens.
"""

import html
import re
import unicodedata

_LETTER = r"[^\W_]"
_CLITIC = rf"'(?:s|m|d|re|ve|ll)(?!{_LETTER})"
_TOKEN = re.compile(
    rf"""
      \d+(?:[.,]\d+)+                                       # 1,000.50
    | [^\W\d_](?:\.[^\W\d_])+(?!{_LETTER})\.?               # u.s.
    | n't(?!{_LETTER})
    | {_CLITIC}
    | {_LETTER}+(?:-{_LETTER}+|(?!{_CLITIC})'{_LETTER}+)*   # bug-eyed, o'brien
    | ([.!?*=~_-])\1*                                       # ... -- !!!
    | [^\w\s\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2060\ufeff\ud800-\udfff]
    """,
    re.VERBOSE,
)
# `(?:n't)*` so that what is cut once is cut everywhere.
_NOT = re.compile(rf"n't(?=(?:n't)*(?!{_LETTER}))")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_QUOTES = str.maketrans({"’": "'", "‘": "'", "`": "'", "´": "'", "“": '"', "”": '"'})


def tokenise(text: str) -> list[str]:
    """The tokens of ``text``; none when it holds nothing but white space."""
    if "&" in text:
        text = html.unescape(text)
    if "<" in text:
        text = _BREAK.sub(" ", text)
    text = unicodedata.normalize("NFC", text.lower()).translate(_QUOTES).replace("''", ' " ')
    if "n't" in text:
        text = _NOT.sub(" n't", text)
    return [
        match.group()[:3] if match.group(1) else match.group() for match in _TOKEN.finditer(text)
    ]
