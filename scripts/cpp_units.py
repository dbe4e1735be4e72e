"""Reads which functions a file declares and defines, and which types it defines.

A reader for the house style, as cpp_names.py: enough to say in which source a
declared function is defined, and that a type is defined twice. What lies in an
anonymous namespace, templates, friends and function bodies are passed over.
"""
import re
from typing import NamedTuple

from cpp_exports import without_comments
from cpp_names import is_word

TOKEN = re.compile(r"""
    "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*'   # literals
  | [A-Za-z_]\w* | \d(?:[\w.]|'\w)*         # words, numbers
  | :: | -> | [^\s]                        # marks
""", re.VERBOSE)
OPEN = {"(": ")", "{": "}", "[": "]"}
TYPES = ("class", "struct", "union", "enum")
SKIPPED = ("using", "typedef", "friend", "static_assert")
ACCESS = ("public", "private", "protected")
INLINE = {"inline", "constexpr", "consteval"}
# Words before a name that are no part of it.
MARKS = {"TESSERA_API", "final", "class", "struct", "alignas"}


class Entry(NamedTuple):
    kind: str  # declared, defined (functions), type
    name: str  # "tessera::detail::OpCall::describe"
    line: int


class Scanner:
    def __init__(self, text):
        text = without_comments(text)
        matches = list(TOKEN.finditer(text))
        self.tokens = [m[0] for m in matches]
        self.starts = [m.start() for m in matches]
        self.text = text
        self.entries = []

    def add(self, kind, path, at):
        line = self.text.count("\n", 0, self.starts[at]) + 1
        self.entries.append(Entry(kind, "::".join(path), line))

    def close(self, i):
        """Returns the index after the group that opens at i."""
        depth = 0
        while i < len(self.tokens):
            depth += self.tokens[i] in OPEN
            depth -= self.tokens[i] in OPEN.values()
            i += 1
            if depth == 0:
                break
        return i

    def close_angles(self, i):
        """The same for a list of template arguments; i where it is none."""
        depth, at = 0, i
        while at < len(self.tokens) and self.tokens[at] not in (";", "{"):
            if self.tokens[at] in ("(", "["):
                at = self.close(at)
                continue
            depth += {"<": 1, ">": -1}.get(self.tokens[at], 0)
            at += 1
            if depth == 0:
                return at
        return i

    def scope(self, i, end, path, in_type):
        """Reads the declarations from i to end."""
        template = False
        while i < end:
            token, following = self.tokens[i], self.tokens[i + 1:i + 2]
            if token in ACCESS and following == [":"]:
                i += 2
            elif token == ";":
                i += 1
            elif token == "[":
                i = self.close(i)
            elif token == "template":
                after = self.close_angles(i + 1)
                i, template = max(after, i + 1), True
                continue
            elif token == "requires":  # of a template
                i = self.close(i + 1) if following == ["("] else i + 1
                continue
            elif token == "namespace" or \
                    (token == "inline" and following == ["namespace"]):
                i = self.namespace(i + (token == "inline"), path)
            elif token == "extern" and following and following[0][0] == '"':
                i += 2 + (self.tokens[i + 2:i + 3] == ["{"])
            elif token == "}":  # of extern "C" {
                i += 1
            elif token in SKIPPED:
                i = self.skip(i, end)
            else:
                i = self.statement(i, end, path, in_type, template)
            template = False

    def namespace(self, i, path):
        start = i
        while self.tokens[start] not in ("{", ";"):
            start += 1
        if self.tokens[start] == ";":
            return start + 1
        words = tuple(t for t in self.tokens[i + 1:start]
                      if is_word(t) and t != "inline")
        end = self.close(start)
        if words:
            self.scope(start + 1, end - 1, path + words, in_type=False)
        return end

    def skip(self, i, end):
        """Passes over a statement, or a function with its body."""
        called = False
        while i < end:
            token = self.tokens[i]
            if token == ";":
                return i + 1
            if token == "{" and called:
                return self.close(i)
            called = called or token == "("
            i = self.close(i) if token in OPEN else i + 1
        return end

    def statement(self, start, end, path, in_type, template):
        i, call, assigned = start, None, False
        while i < end:
            token, before = self.tokens[i], self.tokens[i - 1] if i > start else ""
            if token == ";":
                inline = template or INLINE & set(self.tokens[start:i])
                if call is not None and not assigned and not inline:
                    self.function("declared", path, start, call, in_type)
                return i + 1
            if token == "operator" and call is None:
                i += 3 if self.tokens[i + 1:i + 3] == ["(", ")"] else 1
                while self.tokens[i] != "(":
                    i += 1
                call, i = i, self.close(i)
            elif token == "<" and call is None and before and is_word(before):
                i = max(self.close_angles(i), i + 1)
            elif token == "(":
                is_mark = before in ("alignas", "__attribute__", "explicit")
                call = i if call is None and not is_mark else call
                i = self.close(i)
            elif token == "{":
                if call is None and self.tokens[start] in TYPES:
                    return self.type(start, i, path, in_type)
                after = self.close(i)
                if call is not None and not assigned and \
                        self.tokens[after:after + 1] not in ([","], ["{"]):
                    if not in_type and not template:
                        self.function("defined", path, start, call, in_type)
                    return after
                i = after
            else:
                assigned = assigned or token == "="
                i = self.close(i) if token in OPEN else i + 1
        return end

    def function(self, kind, path, start, call, in_type):
        """Adds the function whose parameters open at `call`."""
        i = call - 1
        if "operator" in self.tokens[start:call]:
            i = start + self.tokens[start:call].index("operator")
            name = ["".join(self.tokens[i:call])]
        else:
            if not is_word(self.tokens[i]):
                return
            name = [self.tokens[i]]
            if self.tokens[i - 1] == "~" and i > start:
                i, name = i - 1, ["~" + name[0]]
        while i - 2 >= start and self.tokens[i - 1] == "::" and \
                is_word(self.tokens[i - 2]):
            i -= 2
            name.insert(0, self.tokens[i])
        # A constructor has no type before its name, all else has one.
        is_free = i == start and not in_type and len(name) == 1
        if not is_free:
            self.add(kind, path + tuple(name), call)

    def type(self, start, brace, path, in_type):
        is_enum = self.tokens[start] == "enum"
        head, i = [], start + 1
        while i < brace and self.tokens[i] != ":":
            if self.tokens[i] in ("[", "("):
                i = self.close(i)
                continue
            if self.tokens[i] not in MARKS:
                head.append(self.tokens[i])
            i += 1
        end = self.close(brace)
        if head:
            inner = path + ("".join(head),)
            if not in_type:
                self.add("type", inner, start)
            if not is_enum:
                self.scope(brace + 1, end - 1, inner, in_type=True)
        return self.skip(end, len(self.tokens)) if head or is_enum else end


def read(text):
    """Returns the entries of a file."""
    scanner = Scanner(text)
    scanner.scope(0, len(scanner.tokens), (), in_type=False)
    return scanner.entries
