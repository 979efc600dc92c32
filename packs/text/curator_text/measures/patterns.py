"""What columns of `text.signals` are about, for people who look at a text: patterns that its places are marked by.

The counts come from elsewhere and are exact; a mark shows where to look.
"""

from __future__ import annotations

ELLIPSIS = r"(?:\.\.\.|\u2026)"
LAST = r"[.!?\u2026\"\u201d'\u2019\u3002\uff01\uff1f\u0964\u061f\u06d4)]"  # ends a sentence, or stands behind its end

PATTERNS: dict[str, str] = {
    "alphabetic_word_ratio": r"(?<!\S)[^\p{L}\s]+(?!\S)",  # tokens without a letter
    "hash_ratio": "#",
    "ellipsis_ratio": ELLIPSIS,
    "stop_word_count": r"(?<!\p{L})(?:the|be|to|of|and|that|have|with)(?!\p{L})",
    "bullet_line_ratio": r"^[ \t]*[-\u2022]",
    "ellipsis_line_ratio": ELLIPSIS + r"[ \t]*$",
    "duplicate_line_ratio": "repeated lines",
    "duplicate_line_char_ratio": "repeated lines",
    "line_char_duplicate_ratio": "repeated lines",
    **{f"duplicate_{n}_gram_char_ratio": f"repeated {n} words" for n in range(5, 11)},
    "c4_curly_bracket": r"[{}]",
    "c4_lorem_ipsum": r"[Ll]orem [Ii]psum",
    "javascript_line_ratio": r"^.*[Jj]ava[Ss]cript.*$",
    "line_punct_ratio": rf"^.*\S(?<!{LAST})[ \t]*$",  # lines that end in the middle
    "short_line_ratio": r"^\S.{0,29}$",
    "alpha_ratio": r"[^\p{L}\s]+",
    "digit_ratio": r"\p{Nd}+",
    "symbol_ratio": r"[\p{P}\p{S}\p{Cc}]+",
    "upper_ratio": r"\p{Lu}+",
    "url_ratio": r"https?://\S+",
}
