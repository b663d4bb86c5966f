"""Reader of SQuAD's official files v1.1 and v2.0, which checks every field.

{"version": ..., "data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [{"id": ...,
"question": ..., "answers": [{"text": ..., "answer_start": ...}], "is_impossible": ...}]}]}]},
where only v2.0 has "is_impossible", and "answer_start" counts characters.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.common import files
from fairseq_plugins.common.errors import DataError

VERSIONS = ("1.1", "2.0")
_KINDS = {str: "a string", int: "an integer", list: "a list", dict: "an object", bool: "a boolean"}


@dataclass(frozen=True)
class Answer:
    """The text at context[start : start + len(text)]."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """The index after the last character."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question with its gold answers, none for an impossible one (v2.0)."""

    id: str
    text: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class Paragraph:
    """A text with its questions."""

    context: str
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class SquadFile:
    """The content of a file; `version` is one of VERSIONS, `raw` the unpacked bytes."""

    version: str
    paragraphs: tuple[Paragraph, ...]
    raw: bytes

    @property
    def questions(self) -> list[Question]:
        """Return all questions, in the order of the file."""
        return [question for paragraph in self.paragraphs for question in paragraph.questions]


def read_squad(path: Path, version: str | None = None) -> SquadFile:
    """Read a file, plain or packed.

    Args:
        path: the file.
        version: required version; None for any. Files with "is_impossible" are 2.0.

    Raises:
        DataError: the file is invalid; the message names the line or the field.
    """
    raw = read_bytes(path)
    content = parse_json(raw, path)
    found = "2.0" if _mentions_impossible(_listed(content, "data")) else "1.1"
    parser = _Parser(str(path), found)
    articles = parser.field(content, "data", list)
    if version not in (None, found):
        raise DataError(
            f"{path}: must be SQuAD v{version}, but is v{found} instead: "
            f"'is_impossible' {'occurs' if found == '2.0' else 'is missing'}"
        )
    paragraphs = []
    for i, article in enumerate(articles):
        where = f"data[{i}]"
        for j, paragraph in enumerate(parser.field(article, "paragraphs", list, where)):
            paragraphs.append(parser.paragraph(paragraph, f"{where}.paragraphs[{j}]"))
    if not parser.ids:
        raise DataError(f"{path}: holds no question")
    return SquadFile(found, tuple(paragraphs), raw)


def read_bytes(path: Path) -> bytes:
    """Read a file, plain or packed.

    Raises:
        DataError: the file is missing or truncated.
    """
    try:
        return files.read_bytes(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def parse_json(raw: bytes, path: Path) -> Any:
    """Parse the content of a JSON file.

    Raises:
        DataError: the content is not JSON; the message names file and line.
    """
    try:
        return json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(f"{path}, line {line}: is not UTF-8: {error.reason}") from error
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}, line {error.lineno}, column {error.colno}: is not JSON: {error.msg} "
            f"(character {error.pos} of {len(error.doc)})"
        ) from error


def _mentions_impossible(articles: list[Any]) -> bool:
    """Return whether a question has the field "is_impossible" of v2.0, ignoring other errors."""
    return any(
        isinstance(question, dict) and "is_impossible" in question
        for article in articles
        for paragraph in _listed(article, "paragraphs")
        for question in _listed(paragraph, "qas")
    )


def _listed(value: Any, name: str) -> list[Any]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _is_text(value: str) -> bool:
    r"""Return whether a string is valid UTF-8; a lone JSON escape like \ud83d is not."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Parser:
    """A parser of one file's parts, with the `ids` seen so far."""

    def __init__(self, file: str, version: str) -> None:
        self.file, self.version = file, version
        self.ids: set[str] = set()

    def field(self, value: Any, name: str, kind: type, where: str = "") -> Any:
        """Return value[name], checked to be of a type."""
        if not isinstance(value, dict):
            location = f"{self.file}: {where}" if where else self.file
            raise DataError(f"{location} must be an object, but is {value!r:.60} instead")
        full = f"{self.file}: {where}.{name}" if where else f"{self.file}: {name}"
        if name not in value:
            raise DataError(f"{full} is missing")
        found = value[name]
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise DataError(f"{full} must be {_KINDS[kind]}, but is {found!r:.60} instead")
        if isinstance(found, str) and not _is_text(found):
            raise DataError(f"{full} must be text, but has half of a surrogate pair: {found!r:.60}")
        return found

    def paragraph(self, value: Any, where: str) -> Paragraph:
        context = self.field(value, "context", str, where)
        questions = self.field(value, "qas", list, where)
        read = (self.question(q, context, f"{where}.qas[{k}]") for k, q in enumerate(questions))
        return Paragraph(context, tuple(read))

    def question(self, value: Any, context: str, where: str) -> Question:
        name = self.field(value, "id", str, where)
        if name in self.ids:
            raise DataError(f"{self.file}: {where}.id must be unique, but {name!r} came before")
        self.ids.add(name)
        text = self.field(value, "question", str, where)
        answers = tuple(
            self.answer(answer, context, f"{where}.answers[{i}]")
            for i, answer in enumerate(self.field(value, "answers", list, where))
        )
        impossible = self.version == "2.0" and self.field(value, "is_impossible", bool, where)
        if impossible == bool(answers):
            raise DataError(
                f"{self.file}: {where}.answers must be "
                f"{'empty where is_impossible is true' if impossible else 'at least one'}, "
                f"but there are {len(answers)}"
            )
        return Question(name, text, answers)

    def answer(self, value: Any, context: str, where: str) -> Answer:
        text = self.field(value, "text", str, where)
        start = self.field(value, "answer_start", int, where)
        if not text:
            raise DataError(f"{self.file}: {where}.text must not be empty")
        found = context[start : start + len(text)] if start >= 0 else ""
        if found != text:
            raise DataError(
                f"{self.file}: {where}.answer_start must be the position of {text!r:.60}, "
                f"but at {start} the context has {found!r:.60}"
            )
        return Answer(text, start)
