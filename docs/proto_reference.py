"""Writes the reference of the proto files: one Markdown page for each file.

    /usr/bin/python3 docs/proto_reference.py DESCRIPTORS FOLDER

DESCRIPTORS is a descriptor set of `protoc --include_source_info`. Only the files of the package
pagoda.v1 get a page. Every service, call, message, field, enum and value has a label with its full
name, for example pagoda.v1.Namespace.keyed. The names of types and files in comments become links.
"""

import argparse
import os
import pathlib
import re
import sys

from google.protobuf import descriptor_pb2

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = "pagoda.v1"
Field = descriptor_pb2.FieldDescriptorProto

# The numbers of fields in google/protobuf/descriptor.proto. A path of SourceCodeInfo consists of
# them and of positions.
SYNTAX = 12
FILE_MESSAGE, FILE_ENUM, FILE_SERVICE = 4, 5, 6
MESSAGE_FIELD, MESSAGE_MESSAGE, MESSAGE_ENUM, MESSAGE_ONEOF = 2, 3, 4, 8
ENUM_VALUE, SERVICE_METHOD = 2, 2

# What can become a link: code, a path of a Markdown file, a proto file, a name with a capital.
WORD = re.compile(r"`[^`]*`|[\w./-]+\.md\b|\b[a-z_]+\.proto\b|\b[A-Z]\w*[a-z]\w*(?:\.\w*[a-z0-9_])*")
# `Tier` is a type and `tier` is a word, so a name that is one English word stays text.
TWO_WORDS = re.compile(r"[A-Z]\w*[a-z]\w*[A-Z]|\.")


def type_name(field):
    return Field.Type.Name(field.type).removeprefix("TYPE_").lower()


def link(full_name, text):
    return f"[`{text}`]({full_name})"


class Names:
    """The full names that have a label."""

    def __init__(self, files):
        self.known = set()
        self._files = {pathlib.PurePath(file.name).name for file in files}
        for file in files:
            self._add(file.message_type, file.package)
            self._add_enums(file.enum_type, file.package)
            for service in file.service:
                name = f"{file.package}.{service.name}"
                self.known |= {name} | {f"{name}.{method.name}" for method in service.method}

    def _add(self, messages, scope):
        for message in messages:
            name = f"{scope}.{message.name}"
            self.known |= {name} | {f"{name}.{field.name}" for field in message.field}
            self._add(message.nested_type, name)
            self._add_enums(message.enum_type, name)

    def _add_enums(self, enums, scope):
        for enum in enums:
            name = f"{scope}.{enum.name}"
            self.known |= {name} | {f"{name}.{value.name}" for value in enum.value}

    def link_type(self, full_name):
        """A type's name, as a link if it has a label."""
        full_name = full_name.lstrip(".")
        short = full_name.removeprefix(PACKAGE + ".")
        return link(full_name, short) if full_name in self.known else f"`{short}`"

    def link_words(self, comment):
        """A comment as Markdown, with links."""
        parts, end = [], 0
        for match in WORD.finditer(comment):
            parts += [escape(comment[end:match.start()]), self._link_word(match.group())]
            end = match.end()
        return "".join([*parts, escape(comment[end:])])

    def _link_word(self, word):
        name = word.strip("`")
        full_name = f"{PACKAGE}.{name}"
        if full_name in self.known and (word.startswith("`") or TWO_WORDS.search(word)):
            return link(full_name, name)
        if word.startswith("`"):
            return word
        if name.endswith(".proto") and name in self._files:
            return f"[{name}]({name.removesuffix('.proto')}.md)"
        if name.endswith(".md") and (ROOT / name).is_file():
            return f"[{name}](../../{name})"
        return escape(word)


def escape(text):
    """Markdown that shows this text. A list stays a list."""
    return re.sub(r"([\\<\[\]{}]|(?<=\S)[*])", r"\\\1", text)


class Page:
    """The page of one file."""

    def __init__(self, file, names):
        self._file, self._names, self._lines = file, names, []
        self._places = {tuple(place.path): place for place in file.source_code_info.location}

    def text(self):
        name = pathlib.PurePath(self._file.name).name
        self._lines = [f"# {name}", ""]
        self._paragraphs(self._file_comment())
        for index, service in enumerate(self._file.service):
            self._service(service, (FILE_SERVICE, index))
        self._group("Messages", self._message, self._file.message_type, FILE_MESSAGE)
        self._group("Enums", self._enum, self._file.enum_type, FILE_ENUM)
        return "\n".join(self._lines).rstrip() + "\n"

    def _group(self, title, write, items, number):
        if items:
            self._lines += [f"## {title}", ""]
        for index, item in enumerate(items):
            write(item, (number, index), PACKAGE)

    def _file_comment(self):
        place = self._places.get((SYNTAX,))
        if place is None:
            return ""
        detached = [strip(comment) for comment in place.leading_detached_comments]
        return "\n\n".join([*detached, strip(place.leading_comments)]).strip()

    def _comment(self, path):
        """The comments before and behind the item."""
        place = self._places.get(path)
        if place is None:
            return ""
        return "\n\n".join(filter(None, [strip(place.leading_comments), strip(place.trailing_comments)]))

    def _paragraphs(self, comment):
        if comment:
            self._lines += [*self._names.link_words(comment).split("\n"), ""]

    def _heading(self, level, full_name):
        self._lines += [f"({full_name})=", f"{'#' * level} {full_name.removeprefix(PACKAGE + '.')}", ""]

    def _service(self, service, path):
        full_name = f"{PACKAGE}.{service.name}"
        self._heading(2, full_name)
        self._paragraphs(self._comment(path))
        for index, method in enumerate(service.method):
            self._lines += [f"({full_name}.{method.name})=", f"### {method.name}", ""]
            sent, got = (("stream " if streams else "") + self._names.link_type(name)
                         for streams, name in ((method.client_streaming, method.input_type),
                                               (method.server_streaming, method.output_type)))
            self._lines += [f"`rpc {service.name}.{method.name}` takes {sent}, returns {got}", ""]
            self._paragraphs(self._comment((*path, SERVICE_METHOD, index)))

    def _message(self, message, path, scope):
        full_name = f"{scope}.{message.name}"
        self._heading(3, full_name)
        self._paragraphs(self._comment(path))
        rows = list(self._field_rows(message, path, full_name))
        if rows:
            self._table(("Field", "Type", "Meaning"), rows)
        elif not self._comment(path):
            self._lines += ["It has no fields.", ""]
        self._reserved(message)
        for index, nested in enumerate(message.nested_type):
            if not nested.options.map_entry:
                self._message(nested, (*path, MESSAGE_MESSAGE, index), full_name)
        for index, enum in enumerate(message.enum_type):
            self._enum(enum, (*path, MESSAGE_ENUM, index), full_name)

    def _field_rows(self, message, path, full_name):
        entries = {f".{full_name}.{nested.name}": nested for nested in message.nested_type
                   if nested.options.map_entry}
        shown = set()
        for index, field in enumerate(message.field):
            in_oneof = field.HasField("oneof_index") and not field.proto3_optional
            if in_oneof and field.oneof_index not in shown:
                shown.add(field.oneof_index)
                oneof = message.oneof_decl[field.oneof_index].name
                comment = self._comment((*path, MESSAGE_ONEOF, field.oneof_index))
                yield None, f"`{oneof}`", "oneof", comment or "At most one of the fields marked with it is set."
            kind = self._type_of(field, entries)
            if in_oneof:
                kind += f", in oneof `{message.oneof_decl[field.oneof_index].name}`"
            yield (f"{full_name}.{field.name}", f"`{field.name} = {field.number}`", kind,
                   self._comment((*path, MESSAGE_FIELD, index)))

    def _type_of(self, field, entries):
        if field.type_name in entries:
            key, value = entries[field.type_name].field
            return f"map from {self._type_of(key, {})} to {self._type_of(value, {})}"
        kind = self._names.link_type(field.type_name) if field.type_name else f"`{type_name(field)}`"
        if field.label == Field.LABEL_REPEATED:
            return f"repeated {kind}"
        return f"optional {kind}" if field.proto3_optional else kind

    def _enum(self, enum, path, scope):
        full_name = f"{scope}.{enum.name}"
        self._heading(3, full_name)
        self._paragraphs(self._comment(path))
        self._table(("Value", "Meaning"), [
            (f"{full_name}.{value.name}", f"`{value.name} = {value.number}`", self._comment((*path, ENUM_VALUE, index)))
            for index, value in enumerate(enum.value)])
        self._reserved(enum)

    def _reserved(self, item):
        ranges = [range(each.start, each.end) for each in item.reserved_range]
        numbers = [str(each.start) if len(each) <= 1 else f"{each.start} to {each.stop - 1}" for each in ranges]
        reserved = numbers + [f"`{name}`" for name in item.reserved_name]
        if reserved:
            self._lines += [f"Reserved: {', '.join(reserved)}.", ""]

    def _table(self, titles, rows):
        """Each row has a label or None, the cells, and a comment as the last cell."""
        self._lines += ["```{list-table}", ":header-rows: 1", ":class: proto", ""]
        self._lines += [("* - " if index == 0 else "  - ") + title for index, title in enumerate(titles)]
        for label, first, *middle, comment in rows:
            self._lines += [f"* - ({label})=", "", f"    {first}"] if label else [f"* - {first}"]
            self._lines += [f"  - {cell}" for cell in middle]
            lines = self._names.link_words(comment).split("\n")
            self._lines += [f"  - {lines[0]}".rstrip(), *(f"    {line}".rstrip() for line in lines[1:])]
        self._lines += ["```", ""]


def strip(comment):
    """A comment without the blank after its slashes."""
    return "\n".join(line.removeprefix(" ").rstrip() for line in comment.split("\n")).strip()


def pages(descriptors):
    """The text of each page, by its name without a suffix."""
    files = [file for file in descriptors.file if file.package == PACKAGE]
    names = Names(files)
    return {pathlib.PurePath(file.name).stem: Page(file, names).text() for file in files}


def main():
    parser = argparse.ArgumentParser(description="Writes the reference of the proto files.")
    parser.add_argument("descriptors", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    written = pages(descriptor_pb2.FileDescriptorSet.FromString(arguments.descriptors.read_bytes()))
    os.makedirs(arguments.folder, exist_ok=True)
    for name, text in written.items():
        (arguments.folder / f"{name}.md").write_text(text)
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(main())
