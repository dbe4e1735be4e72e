"""Reads the names that a public header of Tessera declares.

A small reader for the house style, not for all of C++: namespaces, types with
their public members, functions, constants, aliases, enumerators, macros. What
lies in a namespace `detail` or `std`, operators, constructors, forward
declarations, friends and overrides (the base has them) are left out.
"""
import re
from typing import NamedTuple

TOKEN = re.compile(r"""
    "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*'   # literals
  | [A-Za-z_]\w* | \d[\w.']*                # words, numbers
  | :: | -> | \[\[ | \]\] | [^\s]           # marks
""", re.VERBOSE)
OPEN = {"(": ")", "{": "}", "[": "]", "[[": "]]"}
SKIPPED_NAMESPACES = {"detail", "std", ""}
EXPORT_MARK = "TESSERA_API"  # says how a name is linked, nothing about it
NOT_NAMES = {"if", "for", "while", "return", "sizeof", "decltype", "noexcept",
             "alignas", "requires", "explicit", "static_assert", "void"}


class Name(NamedTuple):
    kind: str  # type, function, value, macro
    path: tuple  # ("Placement", "Kind", "kShard")


def strip_comments(text):
    pattern = r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
    return re.sub(pattern, lambda m: m[1] or " ", text, flags=re.DOTALL)


def split_macros(text):
    """Returns the text without preprocessor lines, and the macros they define."""
    macros, lines = [], []
    for line in text.replace("\\\n", " ").split("\n"):
        if not line.lstrip().startswith("#"):
            lines.append(line)
            continue
        define = re.match(r"\s*#\s*define\s+(\w+)", line)
        if define:
            macros.append(define[1])
    return "\n".join(lines), macros


def close_of(tokens, start):
    """Returns the index after the group that opens at `start`."""
    depth = 0
    for i in range(start, len(tokens)):
        if tokens[i] in OPEN:
            depth += 1
        elif tokens[i] in OPEN.values():
            depth -= 1
            if depth == 0:
                return i + 1
    raise ValueError(f"no end of {' '.join(tokens[start:start + 8])} ...")


def close_of_angles(tokens, start):
    """Returns the index after the template list that opens at `start`."""
    depth, i = 0, start
    while i < len(tokens):
        if tokens[i] in OPEN:
            i = close_of(tokens, i)
            continue
        depth += {"<": 1, ">": -1}.get(tokens[i], 0)
        i += 1
        if depth == 0:
            return i
    raise ValueError(f"no end of {' '.join(tokens[start:start + 8])} ...")


def is_word(token):
    return token[0].isalpha() or token[0] == "_"


class Reader:
    def __init__(self, tokens):
        self.tokens = tokens
        self.names = []

    def add(self, kind, path):
        name = Name(kind, path)
        if name not in self.names:
            self.names.append(name)

    def scope(self, i, end, path, in_type, public):
        """Reads declarations from i to end; members count while `public`."""
        while i < end:
            token, following = self.tokens[i], self.tokens[i + 1:i + 2]
            if token in ("public", "private", "protected") and following == [":"]:
                public, i = token == "public", i + 2
            elif token == ";":
                i += 1
            elif token == "[[":
                i = close_of(self.tokens, i)
            elif token == "template":
                i = close_of_angles(self.tokens, i + 1)
            elif token == "namespace" or \
                    (token == "inline" and following == ["namespace"]):
                i = self.namespace(i + (token == "inline"), path)
            elif token == "enum":
                i = self.enum(i, path, public)
            elif token in ("class", "struct", "union"):
                i = self.type(i, path, in_type, public)
            elif token == "using":
                i = self.using(i, path, public)
            else:
                i = self.declaration(i, path, in_type, public)

    def statement_end(self, i):
        while self.tokens[i] != ";":
            i = close_of(self.tokens, i) if self.tokens[i] in OPEN else i + 1
        return i + 1

    def namespace(self, i, path):
        start = self.tokens.index("{", i)
        if "=" in self.tokens[i:start]:
            return self.statement_end(i)
        words = [t for t in self.tokens[i + 1:start] if is_word(t)] or [""]
        end = close_of(self.tokens, start)
        if not SKIPPED_NAMESPACES & set(words):
            inner = tuple(w for w in words if w != "tessera")
            self.scope(start + 1, end - 1, path + inner, False, True)
        return end

    def enum(self, i, path, public):
        end = self.statement_end(i)
        words = self.tokens[i + 1:end]
        name = next(w for w in words if is_word(w) and w not in ("class", "struct"))
        if "{" not in words or not public:
            return end
        self.add("type", path + (name,))
        i = self.tokens.index("{", i) + 1
        expected = True
        while self.tokens[i] != "}":
            if expected and is_word(self.tokens[i]):
                self.add("value", path + (name, self.tokens[i]))
                expected = False
            expected = expected or self.tokens[i] == ","
            i = close_of(self.tokens, i) if self.tokens[i] in OPEN else i + 1
        return end

    def type(self, i, path, in_type, public):
        keyword, head = self.tokens[i], i + 1
        if self.tokens[head] == "[[":
            head = close_of(self.tokens, head)
        name, at = self.tokens[head], head + 1
        specialised = self.tokens[at] in ("<", "::")
        while self.tokens[at] not in ("{", ";"):
            at += 1
        if self.tokens[at] == ";":
            return at + 1
        end = close_of(self.tokens, at)
        if public and not specialised:
            self.add("type", path + (name,))
            self.scope(at + 1, end - 1, path + (name,), True, keyword != "class")
        return self.statement_end(end)

    def using(self, i, path, public):
        end = self.statement_end(i)
        if public and self.tokens[i + 2] == "=":
            self.add("type", path + (self.tokens[i + 1],))
        return end

    def declaration(self, i, path, in_type, public):
        start, end = i, self.declaration_end(i)
        words = self.tokens[start:end]
        if not public or words[0] in ("friend", "static_assert", "extern", "~") \
                or {"operator", "typedef", "override"} & set(words):
            return end
        for name, kind in self.declared(words):
            is_constructor = in_type and path and name == path[-1]
            if name and name not in NOT_NAMES and not is_constructor:
                self.add(kind, path + (name,))
        return end

    def declaration_end(self, i):
        """Finds the `;`, or the end of a function's body."""
        seen_call = False
        while True:
            token = self.tokens[i]
            if token == ";":
                return i + 1
            if token == "operator":
                while self.tokens[i + 1] != "(":
                    i += 1
            elif token == "<" and is_word(self.tokens[i - 1]) and not seen_call:
                i = close_of_angles(self.tokens, i)
                continue
            if token == "{" and seen_call and self.tokens[i - 1] != "=" and \
                    not (is_word(self.tokens[i - 1]) and self.tokens[i - 1]
                         not in ("const", "noexcept", "override", "final")):
                return close_of(self.tokens, i)
            seen_call = seen_call or token == "("
            i = close_of(self.tokens, i) if token in OPEN else i + 1

    def declared(self, words):
        """Yields the names that a declaration declares, with their kinds."""
        i, last, named = 0, "", False
        while i < len(words):
            word = words[i]
            if word == "(" and words[i - 1] == last and not named and \
                    last not in NOT_NAMES:
                if "~" not in words[:i]:
                    yield last, "function"
                return
            if word in ("=", ",", ";", "{", "[") and not named:
                yield last, "value"
                named = True
            named = named and word != ","
            if word == "<" and last and not named:
                i = close_of_angles(words, i)
            elif word in OPEN:
                i = close_of(words, i)
            else:
                last = word if is_word(word) and not named else last
                i += 1


def read_names(text):
    """Returns the public names of a header's text, in order."""
    text, macros = split_macros(strip_comments(text))
    reader = Reader([t for t in TOKEN.findall(text) if t != EXPORT_MARK])
    reader.scope(0, len(reader.tokens), (), False, True)
    return [Name("macro", (m,)) for m in macros] + reader.names
