"""Conversion of the catalogue's plain formulas to MathML.

Mathematics are: single letters and Greek names, numbers, functions, `_` and `^`, `sqrt(...)`,
`sum_j`. Other words stay text.
"""

import re
from collections.abc import Sequence
from html import escape

from markupsafe import Markup

# HTML's names.
_GREEK = frozenset(
    {"alpha", "beta", "gamma", "theta", "phi", "psi", "pi", "sigma", "omega"}
    | {"Lambda", "Theta", "Phi", "Pi"}
)
_FUNCTIONS = frozenset(
    {"sin", "cos", "tan", "exp", "log", "ln", "max", "min", "clip", "diag", "sigmoid", "bucket"}
    | {"reset", "softmax", "base", "logit", "score", "output", "GRU", "SPE", "E"}
)
_SIGNS = {"<=": "&le;", ">=": "&ge;", "...": "&hellip;", "-": "&minus;", ".": "&middot;"}
_SIGNS |= {"*": "&odot;"}
_TOKEN = re.compile(r"[A-Za-z]+|\d+(?:\.\d+)?|<=|>=|\.\.\.|\.\.|\S|\s+")
_CLOSING = {"(": ")", "[": "]"}


def mathml(text: str) -> Markup:
    """Convert a formula to a MathML element labelled with the formula."""
    parser = _Parser(list(_TOKEN.findall(text)))
    rows = "".join(parser.sequence("")).replace("&nbsp;</mtext><mtext>&nbsp;", "&nbsp;")
    rows = re.sub("&nbsp;</mtext><mo>([,;)])", r"</mtext><mo>\1", rows)
    label = escape(text, quote=True)
    return Markup(f'<math aria-label="{label}"><mrow>{rows}</mrow></math>')


class _Parser:
    """A parser of tokens from left to right; every method returns MathML."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens, self.at = tokens, 0

    def peek(self, ahead: int = 0) -> str:
        """Return a token ahead; "" at the end."""
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def sequence(self, closing: str) -> list[str]:
        """Parse up to a closing bracket, which is not consumed."""
        found = []
        while self.peek() and self.peek() != closing:
            found.append(self.scripted())
        return found

    def scripted(self) -> str:
        """Parse an atom with its subscript and superscript."""
        is_sum = self.peek() == "sum"
        base = self.atom()
        below = above = ""
        while self.peek() in ("_", "^"):
            sign = self.peek()
            self.at += 1
            if sign == "_":
                below = self.script()
            else:
                above = self.script()
        if below and above:
            return f"<msubsup>{base}{below}{above}</msubsup>"
        if below:
            tag = "munder" if is_sum else "msub"
            return f"<{tag}>{base}{below}</{tag}>"
        return f"<msup>{base}{above}</msup>" if above else base

    def script(self) -> str:
        """Parse a script after `_` or `^`: the content of a bracket, or a short name."""
        if self.peek() in ("(", "["):
            return f"<mrow>{''.join(self.bracket(bare=True))}</mrow>"
        token = self.peek()
        if token == "-":
            self.at += 1
            return f"<mrow><mo>&minus;</mo>{self.atom()}</mrow>"
        if re.fullmatch(r"[a-z]{2,3}", token) and token not in _GREEK:  # w_st has two indices
            self.at += 1
            return f"<mrow>{''.join(f'<mi>{letter}</mi>' for letter in token)}</mrow>"
        return self.atom()

    def bracket(self, *, bare: bool = False) -> list[str]:
        opening = self.peek()
        closing = _CLOSING[opening]
        self.at += 1
        inner = self.sequence(closing)
        if self.peek() == closing:
            self.at += 1
        return inner if bare else [f"<mo>{opening}</mo>", *inner, f"<mo>{closing}</mo>"]

    def atom(self) -> str:
        token = self.peek()
        if token in ("(", "["):
            return f"<mrow>{''.join(self.bracket())}</mrow>"
        self.at += 1
        if token.isspace():
            return ""
        if token == "sqrt" and self.peek() == "(":
            return f"<msqrt>{''.join(self.bracket(bare=True))}</msqrt>"
        if token == "sum":
            return "<mo>∑</mo>"
        if token in _GREEK:
            return f"<mi>&{token};</mi>"
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return self.name(token)
        return f"<mo>{_SIGNS.get(token) or escape(token)}</mo>"

    def name(self, token: str) -> str:
        """Parse a variable of one letter, a function, or words."""
        if token in _FUNCTIONS and not self._is_word_ahead():
            return f'<mi mathvariant="normal">{token}</mi>'
        if len(token) == 1 and not (token == "a" and self._is_word_ahead()):
            return f"<mi>{token}</mi>"
        words = [token]
        if self.peek() in ("_", "^"):  # lrpe_type2 is one name
            name = re.match(r"[A-Za-z0-9_]+", "".join(self.tokens[self.at : self.at + 6]))
            assert name is not None or self.peek() == "^"
            if name is not None:
                count = len(_TOKEN.findall(name[0]))
                words = [token + name[0]]
                self.at += count
        return f"<mtext>&nbsp;{escape(' '.join(words))}&nbsp;</mtext>"

    def _is_word_ahead(self) -> bool:
        return (
            self.peek().isspace()
            and len(self.peek(1)) > 1
            and self.peek(1).isalpha()
            and self.peek(1) not in _GREEK
            and self.peek(1) not in _FUNCTIONS | {"sum", "sqrt"}
        )
