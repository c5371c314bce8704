"""The tokenizer of the classification data: deterministic, without a model.

- HTML entities are decoded (only with their semicolon), ``<br />`` is a space; Unicode is
  normalized (NFC) and lower-cased; invisible format characters are removed.
- A word is a run of letters, digits and their combining marks, as in Unicode's word boundaries
  (UAX #29): scripts without spaces are cut into single ideographs, kana, Thai letters, ...;
  joiners inside of a word are part of it. Hyphens and apostrophes inside of a word belong to it
  (``bug-eyed``, ``o'brien``), and so do the points of an abbreviation (``u.s.``).
- Contractions are cut as in the Penn Treebank, which SST and the common word vectors follow:
  ``don't`` -> ``do n't``, ``it's`` -> ``it 's``, ``we'll`` -> ``we 'll``.
- Numbers keep the points and commas inside of them (``1,000.50``).
- An emoji is one token, with its skin tone, variation selector and joined emojis; so is a flag.
- Every other mark is a token of its own; of a repeated ``. ! ? - * = ~ _`` a run of up to three is
  one (``...``, ``--``, ``!!!``). Curly and Treebank quotes become straight ones.

Tokens that are joined by spaces and tokenized again are the same tokens.
"""

import html
import html.entities
import re
from unicodedata import category, normalize

# Combining marks: all are below U+20000, apart from the supplementary variation selectors.
_MARKS = "".join(chr(code) for code in range(0x300, 0x20000) if category(chr(code))[0] == "M")
_MARKS += "\U000e0100-\U000e01ef"
_JOINERS = "\u200c\u200d"
_KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
# Scripts without spaces, each letter of which is a word without a dictionary: Han and Hiragana; and
# the scripts of line-breaking class SA (Thai, Lao, Myanmar, Khmer, Tai, Ahom) but for their digits.
_SINGLE = (
    "\u3005-\u3007\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u0e01-\u0e4f\u0e81-\u0ecf\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u1780-\u17df\u1950-\u19cf"
    "\u1a20-\u1a7f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaadf\U00011700-\U0001172f"
)


def _token_pattern(marks: str, single: str, katakana: str) -> re.Pattern:
    """The pattern of one token; group 1 is a run of the same punctuation mark."""
    letter = rf"[^\W_{single}{katakana}]"
    end = rf"(?!{letter}|[{marks}])"
    run = rf"{letter}+(?:[{marks}]+{letter}*|[{_JOINERS}]+{letter}+)*"
    initial = rf"(?!\d){letter}[{marks}]*"
    clitic = rf"'(?:s|m|d|re|ve|ll){end}"
    # Not a letter, digit or white space, nor a control character, a joiner or a surrogate.
    symbol = r"[^\w\s\x00-\x1f\x7f-\x9f\u200b-\u200d\ud800-\udfff]"
    extensions = rf"[{marks}\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"  # skin tones, tags
    return re.compile(
        rf"""
          [0-9\#*]\ufe0f?\u20e3                                   # keycaps
        | \d+(?:[.,\u066b\u066c]\d+)+                             # 1,000.50
        | {initial}(?:\.{initial})+{end}\.?                       # u.s.
        | n't{end}
        | {clitic}
        | {run}(?:[-\u00b7\u2027\u05f3\u05f4]{run}|(?!{clitic})'{run})*   # bug-eyed, o'brien
        | [{katakana}][{katakana}{marks}]*
        | [{single}][{marks}]*
        | ([.!?*=~_-])\1*                                         # ... -- !!!
        | [\U0001f1e6-\U0001f1ff]{{2}}                            # flags
        | {symbol}{extensions}(?:\u200d{symbol}{extensions})*
        """,
        re.VERBOSE,
    )


_TOKEN = _token_pattern(_MARKS, _SINGLE, _KATAKANA)
# The same for text without a character above U+02FF, four times as fast.
_LATIN_TOKEN = _token_pattern("\u0300", "\u3005", "\u30a1")
_CLITIC_END = rf"(?![^\W_{_SINGLE}{_KATAKANA}]|[{_MARKS}])"
# `(?:n't)*`: cut at each of several.
_NOT = re.compile(rf"n't(?=(?:n't)*{_CLITIC_END})")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|([a-zA-Z][a-zA-Z0-9]*));")
# Soft hyphen, word joiner, byte-order mark, and the marks of writing direction.
_INVISIBLE = re.compile("[\u00ad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "`": "'", "´": "'", "“": '"', "”": '"'})


def tokenize(text: str) -> list[str]:
    """The tokens of ``text``; an empty list if it holds nothing visible."""
    if "&" in text:
        text = _ENTITY.sub(_decode_entity, text)
    if "<" in text:
        text = _BREAK.sub(" ", text)
    text = text.lower()
    if not text.isascii():
        text = normalize("NFC", _INVISIBLE.sub("", text)).translate(_QUOTES)
    text = text.replace("`", "'").replace("''", ' " ')
    if "n't" in text:
        text = _NOT.sub(" n't", text)
    pattern = _LATIN_TOKEN if max(text, default="") < "\u0300" else _TOKEN
    return [match[0][:3] if match[1] else match[0] for match in pattern.finditer(text)]


def _decode_entity(match: re.Match) -> str:
    name = match[1]
    known = name is None or f"{name};" in html.entities.html5
    # Python decodes a known beginning as well: &section; would become § and ion;
    return html.unescape(match[0]) if known else match[0]
