"""Reads which declarations of a public header are defined in a source file.

A reader for the house style, as cpp_names.py: functions without a body, classes
with such members or with virtual functions, extern variables. Each comes with
its line, whether TESSERA_API marks it, and why it needs the mark, if it does.
"""
import re
from typing import NamedTuple

import cpp_names

MARK = cpp_names.EXPORT_MARK
# Words that make a function a definition of every file that includes it.
INLINE = {"inline", "constexpr", "consteval"}
EXCEPTIONS = {"Error", "exception", "runtime_error", "logic_error"}
CLASS_KEYS = ("class", "struct", "union")


class Declaration(NamedTuple):
    kind: str  # function, class, forward (of a class), variable
    path: tuple  # ("tessera", "Box", "numel"); of a specialisation "std::hash<X>"
    line: int
    at: int  # where the mark belongs: an offset into the header's text
    marked: bool
    why: str  # why a source defines a part of it; "" where none does
    scope: str  # namespace, friend, or the class that it is a member of
    signature: str  # of a function: its text without mark and default values

    @property
    def name(self):
        return "::".join(self.path)

    @property
    def in_detail(self):
        return "detail" in self.path[:-1]


class Use(NamedTuple):
    word: str  # an identifier in code that including files compile
    inside: tuple  # the class that the code is a member of


class Header(NamedTuple):
    declarations: list
    uses: set


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def without_comments(text):
    """Blanks comments and preprocessor lines; offsets and lines stay."""
    pattern = r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
    text = re.sub(pattern, lambda m: m[0] if m[1] else blank(m), text,
                  flags=re.DOTALL)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text,
                  flags=re.MULTILINE)


def joined(tokens):
    """Returns tokens as text, blanks between words only."""
    text = ""
    for token in tokens:
        gap = text and cpp_names.is_word(token) and re.match(r"\w", text[-1])
        text += (" " if gap else "") + token
    return text


class Reader:
    def __init__(self, text):
        self.text = without_comments(text)
        found = list(cpp_names.TOKEN.finditer(self.text))
        self.tokens = [m[0] for m in found]
        self.starts = [m.start() for m in found]
        self.declarations, self.uses = [], set()
        self.polymorphic = set()  # names of classes with virtual functions
        self.space = ()  # the namespace

    def line(self, i):
        return self.text.count("\n", 0, self.starts[i]) + 1

    def close(self, i):
        return cpp_names.close_of(self.tokens, i)

    def statement_end(self, i):
        while self.tokens[i] != ";":
            i = self.close(i) if self.tokens[i] in cpp_names.OPEN else i + 1
        return i + 1

    def use(self, start, end, inside):
        self.uses |= {Use(t, inside) for t in self.tokens[start:end]
                      if cpp_names.is_word(t)}

    def add(self, kind, path, at, marked, why, scope="namespace", signature=""):
        self.declarations.append(Declaration(
            kind, path, self.line(at), self.starts[at], marked, why, scope,
            signature))

    def scope(self, i, end, path, owner, template=False):
        """Reads the declarations from i to end; `owner` is a class or None."""
        while i < end:
            i = self.item(i, path, owner, template)

    def item(self, i, path, owner, template):
        token, following = self.tokens[i], self.tokens[i + 1:i + 2]
        if token in ("public", "private", "protected") and following == [":"]:
            return i + 2
        if token == ";":
            return i + 1
        if token == "template":
            end = cpp_names.close_of_angles(self.tokens, i + 1)
            generic = end > i + 3  # `template <>` is a specialisation
            if self.tokens[end] == "requires":
                end = self.constraint_end(end)
            return self.item(end, path, owner, template or generic)
        if token == "namespace" or (token == "inline" and
                                    following == ["namespace"]):
            return self.namespace(i + (token == "inline"), path)
        if token in ("using", "static_assert", "enum", "typedef", "concept"):
            return self.statement_end(i)
        if token in CLASS_KEYS:
            return self.type(i, path, owner, template)
        if token == "friend" and following and following[0] in CLASS_KEYS:
            return self.statement_end(i)
        return self.declaration(i, path, owner, template)

    def constraint_end(self, i):
        """Returns where the declaration behind a requires-clause begins."""
        i += 1
        if self.tokens[i] == "requires":
            while self.tokens[i] != "{":
                i = self.close(i) if self.tokens[i] == "(" else i + 1
            return self.close(i)
        while self.tokens[i + 1] in ("::", "<"):
            i = cpp_names.close_of_angles(self.tokens, i + 1) - 1 \
                if self.tokens[i + 1] == "<" else i + 2
        return i + 1

    def namespace(self, i, path):
        start = self.tokens.index("{", i)
        words = [t for t in self.tokens[i + 1:start]
                 if cpp_names.is_word(t) and t != "inline"]
        end = self.close(start)
        outer, self.space = self.space, path + tuple(words)
        self.scope(start + 1, end - 1, self.space, None)
        self.space = outer
        return end

    def type(self, i, path, owner, template):
        head = i + 1
        if self.tokens[head] == "[[":
            head = self.close(head)
        marked = self.tokens[head] == MARK
        name_at = head + marked
        body = name_at
        while self.tokens[body] not in ("{", ":", ";", "final"):
            body = cpp_names.close_of_angles(self.tokens, body) \
                if self.tokens[body] == "<" else body + 1
        name = joined(self.tokens[name_at:body])
        bases = body
        while self.tokens[body] not in ("{", ";"):
            body += 1
        if self.tokens[body] == ";":
            if marked:
                self.add("forward", path + (name,), head, True, "")
            return body + 1
        end = self.close(body)
        self.read_class(path + (name,), (head, marked),
                        self.tokens[bases:body], (body + 1, end - 1),
                        owner, template)
        return self.statement_end(end)

    def read_class(self, path, head, bases, body, owner, template):
        before = len(self.declarations)
        self.scope(*body, path, path, template)
        members = [d for d in self.declarations[before:]
                   if d.scope == "::".join(path) and d.why]
        words = self.tokens[slice(*body)]
        virtual = "virtual" in words or "override" in words or \
            bool(self.polymorphic & set(bases))
        if virtual:
            self.polymorphic.add(path[-1])
        why = ""
        if template:
            pass
        elif members:
            why = f"{members[0].path[-1]} is defined in a source"
        elif virtual:
            why = "it has virtual functions"
        elif EXCEPTIONS & set(bases):
            why = "it is thrown"
        self.add("class", path, head[0], head[1], why,
                 "::".join(owner) if owner else "namespace")

    def declaration(self, i, path, owner, template):
        start, end, body = i, *self.declaration_end(i)
        words = self.tokens[start:end]
        friend = words[0] == "friend"
        marked = MARK in words
        at = start
        while self.tokens[at] in ("friend", "extern", "[["):
            at = self.close(at) if self.tokens[at] == "[[" else at + 1
        name, parameters = self.signature(start, end)
        if friend and "::" in self.tokens[at:parameters or end] and \
                self.tokens[(parameters or end) - 2] == "::":
            return end  # names what another declaration declares
        scope = "friend" if friend else \
            "::".join(owner) if owner else "namespace"
        inside = owner or ()
        if parameters:
            list_end = self.close(parameters)
            tail = self.tokens[list_end:end]
            defined = body or INLINE & set(words) or "=" in tail
            self.use(parameters, list_end, inside)
            if body:
                self.use(start, end, inside)
            why = "" if template or defined else "it is defined in a source"
            of = self.space if friend else path
            before = [t for t in self.tokens[at:parameters] if t != MARK]
            self.add("function", of + (name,), at, marked, why, scope,
                     joined(before + self.without_defaults(parameters, list_end)
                            + tail[:tail[:1] == ["const"]]))
        else:
            self.use(start, end, inside)
            static = owner and words[0] == "static"
            extern = words[0] == "extern" or static
            why = "it is defined in a source" \
                if extern and not template and not INLINE & set(words) else ""
            if why or marked:
                self.add("variable", path + (name,), at, marked, why, scope)
        return end

    def declaration_end(self, i):
        """Finds the end, and whether it is that of a function's body."""
        seen_call = False
        while True:
            token = self.tokens[i]
            if token == ";":
                return i + 1, False
            if token == "operator":
                i += 1
                while self.tokens[i] != "(" or self.tokens[i - 1] == "operator":
                    i += 1
                continue
            if token == "<" and cpp_names.is_word(self.tokens[i - 1]) and \
                    not seen_call:
                i = cpp_names.close_of_angles(self.tokens, i)
                continue
            previous = self.tokens[i - 1]
            if token == "{" and seen_call and previous != "=" and not (
                    cpp_names.is_word(previous) and previous not in
                    ("const", "noexcept", "override", "final")):
                return self.close(i), True
            seen_call = seen_call or token == "("
            i = self.close(i) if token in cpp_names.OPEN else i + 1

    def signature(self, i, end):
        """Returns a declaration's name, and where its parameters begin or 0."""
        last = ""
        while i < end:
            token = self.tokens[i]
            if token == "operator":
                first = i + 1
                i = first + 1
                while self.tokens[i] != "(":
                    i += 1
                gap = " " if cpp_names.is_word(self.tokens[first]) else ""
                return "operator" + gap + "".join(self.tokens[first:i]), i
            if token == "(" and last:
                tilde = self.tokens[i - 2] == "~"
                return ("~" if tilde else "") + last, i
            if token in ("=", "{", ";"):
                return last, 0
            if token == "<" and last:
                i = cpp_names.close_of_angles(self.tokens, i)
            elif token in cpp_names.OPEN:
                i = self.close(i)
            else:
                if cpp_names.is_word(token) and token != MARK:
                    last = token
                i += 1
        return last, 0

    def without_defaults(self, start, end):
        """Returns the tokens of a list of parameters, default values left out."""
        kept, i = [], start
        while i < end:
            if self.tokens[i] == "=":
                while i < end - 1 and self.tokens[i] != ",":
                    i = self.close(i) if self.tokens[i] in cpp_names.OPEN \
                        else i + 1
            else:
                kept.append(self.tokens[i])
                i += 1
        return kept


def read_header(text):
    """Returns the declarations of a header's text and the words its code uses."""
    reader = Reader(text)
    reader.scope(0, len(reader.tokens), (), None)
    return Header(reader.declarations, reader.uses)
