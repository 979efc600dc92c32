"""What somebody sent to arXiv: which of its files is the paper, and the paper with all that it includes.

Source: https://info.arxiv.org/help/submit_tex.html, https://info.arxiv.org/help/00README.html.
"""

from __future__ import annotations

import io
import json
import posixpath
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

from curator.io.files.compression import decompressed
from curator.io.media.tar import Damage, TarReader
from curator_text.extract.decode import decode_text
from curator_text.get.latex import COMMENT

_INCLUDED = (".txt", ".inc", ".pstex_t", ".pdf_t", ".tikz")
_NO_PAPER = (".bib", ".bbl", ".bst", ".cls", ".sty", ".eps", ".ps", ".pdf", ".png", ".jpg", ".jpeg")
_TEX = (".tex", ".ltx", ".latex")
_DEPTH, _FILES = 20, 2000  # of files that include one another
_CLASS = re.compile(r"\\document(?:class|style)\b")
_TEX_MARK = re.compile(r"\\(?:document(?:class|style)|begin|input|section|def|magnification|title|bye)\b")
_INPUT = re.compile(r"\\(?:input|include|subfile)\s*(?:\{\s*\"?([^{}\"]+?)\"?\s*\}|(?=[\w./-])([\w./-]+))"
                    r"|\\(?:sub)?import\*?\s*\{([^{}]*)\}\s*\{([^{}]+)\}")
_WITHDRAWN = re.compile(rb"\s*%\s*auto-ignore", re.IGNORECASE)
_USUAL = ("ms", "main", "paper", "article", "manuscript", "root")


@dataclass(frozen=True)
class Paper:
    """The main file with what it includes. `missing`: what it includes and nobody sent."""

    main: str
    latex: str
    missing: list[str]


class NoPaper(Exception):
    """There is no TeX in it; the message is the reason of the drop."""


def paper(name: str, data: bytes, max_bytes: int) -> Paper:
    """The paper in a submission: a member of arXiv's archives, as it stands there.

    Raises:
        NoPaper: it is something else: `pdf`, `postscript`, `withdrawn`, `no_tex`, or `too_large`.
        ValueError: it is damaged.
    """
    if name.lower().endswith(".pdf"):
        raise NoPaper("pdf")
    if name.lower().endswith(".gz"):
        with decompressed(io.BytesIO(data), "gz", name) as file:
            data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise NoPaper("too_large")
    alone = posixpath.basename(name).removesuffix(".gz")
    files = _members(data) if _is_tar(data) else {alone: data}
    if len(files) == 1:
        _refuse(next(iter(files.values())))
    texts = _texts(files)
    if not texts:
        raise NoPaper("pdf" if any(n.lower().endswith(".pdf") for n in files) else "no_tex")
    main = main_file(texts, files)
    joiner = _Joiner(texts, main, max_bytes)
    return Paper(main, joiner.joined(main), joiner.missing)


def main_file(texts: Mapping[str, str], files: Mapping[str, bytes]) -> str:
    """The file that is compiled: what a 00README says, else the one with a document class that no other one
    includes, whole, of a usual name, near the top, large."""
    said = [name for name in _said(files) if name in texts]
    if said:
        return said[0]
    included = {found for name, text in texts.items() for found in _includes(name, text, texts)}

    def rank(name: str) -> tuple[bool, bool, bool, bool, int, int, str]:
        code = _without_comments(texts[name])
        stem = posixpath.basename(name).rpartition(".")[0].lower() or name
        return (not _CLASS.search(code), name in included, "\\begin{document}" not in code,
                stem not in _USUAL, name.count("/"), -len(texts[name]), name)

    return min(texts, key=rank)


class _Joiner:
    """Puts files together by what they include; bounded, for strangers wrote it."""

    def __init__(self, texts: Mapping[str, str], main: str, max_chars: int) -> None:
        self._texts, self._main, self._left, self._count = texts, main, max_chars, 0
        self.missing: list[str] = []

    def joined(self, name: str, above: tuple[str, ...] = ()) -> str:
        """A file with the files that it includes in their places."""
        self._count += 1
        if name in above:
            raise ValueError(f"{name} includes itself")
        if self._count > _FILES or len(above) > _DEPTH:
            raise ValueError(f"it includes more than {_FILES} files, or {_DEPTH} deep")
        parts: list[str] = []
        for line in self._texts[name].splitlines(keepends=True):
            at = 0
            for found in _INPUT.finditer(COMMENT.sub(r"\1", line)):
                target = _target(found, name, self._main, self._texts)
                if target is not None:
                    parts += [self._kept(line[at:found.start()]), self.joined(target, (*above, name))]
                    at = found.end()
                elif _wanted(found) not in self.missing:
                    self.missing.append(_wanted(found))
            parts.append(self._kept(line[at:]))
        return "".join(parts)

    def _kept(self, text: str) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise ValueError("with all that it includes it is too large")
        return text


def _wanted(found: re.Match) -> str:
    return posixpath.join(found[3], found[4]) if found[4] else (found[1] or found[2])


def _target(found: re.Match, name: str, main: str, texts: Mapping[str, str]) -> str | None:
    """The file that is included: TeX looks from where the main file is; some packages from the file itself.
    """
    wanted = _wanted(found)
    for base in dict.fromkeys((posixpath.dirname(main), posixpath.dirname(name), "")):
        path = posixpath.normpath(posixpath.join(base, wanted))
        for candidate in (f"{path}.tex", path):
            if candidate in texts:
                return candidate
    return None


def _includes(name: str, text: str, texts: Mapping[str, str]) -> set[str]:
    found = (_target(match, name, name, texts) for match in _INPUT.finditer(_without_comments(text)))
    return {target for target in found if target and target != name}


def _without_comments(text: str) -> str:
    return COMMENT.sub(r"\1", text)


def _is_tar(data: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(data[:512], "utf-8", "replace")
    except tarfile.HeaderError:
        return False
    return True


def _members(data: bytes) -> dict[str, bytes]:
    """The files of a tar by their names, without `./`."""
    files: dict[str, bytes] = {}
    tar = TarReader(io.BytesIO(data))
    for member in tar.members():
        if isinstance(member, Damage):
            if member.certain:
                raise ValueError(f"its tar is damaged at byte {member.offset}: {member.error}")
        elif member.kind == "file":
            content = tar.content()
            if content is not None:
                files[posixpath.normpath(member.name)] = content
    return files


def _texts(files: Mapping[str, bytes]) -> dict[str, str]:
    """The files that are TeX, by their endings, or where there is none such by what they say."""
    texts = {name: decode_text(data)[0] for name, data in files.items()
             if name.lower().endswith(_TEX) and not _WITHDRAWN.match(data)}
    if texts:  # what they include may have any ending
        return texts | {name: _text(data) for name, data in files.items()
                        if name not in texts and name.lower().endswith(_INCLUDED)}
    return {name: text for name, data in files.items() if not name.lower().endswith(_NO_PAPER)
            and _TEX_MARK.search(text := _text(data))}


def _text(data: bytes) -> str:
    try:
        return decode_text(data)[0]
    except ValueError:  # no text at all
        return ""


def _refuse(data: bytes) -> None:
    """A submission of one file that is no TeX."""
    if _WITHDRAWN.match(data) or not data.strip():
        raise NoPaper("withdrawn")
    if data.startswith(b"%PDF"):
        raise NoPaper("pdf")
    if data.lstrip(b"\x04\r\n").startswith(b"%!PS") or b"%!PS-Adobe" in data[:200]:
        raise NoPaper("postscript")


def _said(files: Mapping[str, bytes]) -> list[str]:
    """The main files that a 00README names."""
    for name, data in files.items():
        if not posixpath.basename(name).upper().startswith("00README"):
            continue
        if name.lower().endswith(".json"):
            try:
                sources = json.loads(data)["sources"]
                return [one["filename"] for one in sources if one.get("usage") == "toplevel"]
            except (ValueError, KeyError, TypeError, AttributeError):  # written by hand
                return []
        lines = [line.split() for line in _text(data).splitlines()]
        return [words[0] for words in lines if len(words) > 1 and words[1].lower() == "toplevelfile"]
    return []
