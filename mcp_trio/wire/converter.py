"""One cattrs converter per revision, built from the marks on the wire classes.

Reading is strict about types (nothing is coerced) and tolerant of unknown keys, which
a class with an `extra` field keeps (B12). Writing leaves out what the revision does
not have and what is not set; an extra key never stands in for a field of the class.
The only module above the codec where `Any` is at home.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, Union, cast, get_args, get_origin

import attrs
import cattrs
import msgspec
from cattrs.cols import list_structure_factory
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from mcp_trio.errors import InvalidParamsError
from mcp_trio.wire.basic import JSONObject
from mcp_trio.wire.content import ContentBlock, TextContent
from mcp_trio.wire.marks import (
    ABSENT,
    ALWAYS,
    BEFORE,
    KIND,
    KIND_SINCE,
    NAME,
    SINCE,
    UNTIL,
    Before,
    in_words,
)
from mcp_trio.wire.revisions import REVISIONS, Revision
from mcp_trio.wire.sampling import SamplingBlock, SamplingBlocks

T = TypeVar("T")
EXTRA = "extra"
MAX_FAULTS = 8
"""Places named in one error."""


def camel(name: str) -> str:
    """Turn an attribute name into its wire name: `ttl_ms` is `ttlMs`."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def wire_name(field: attrs.Attribute[Any]) -> str:
    """The key under which a field travels."""
    return field.metadata.get(NAME) or camel(field.name)


def in_revision(field: attrs.Attribute[Any], revision: Revision) -> bool:
    """Tell whether the revision has this field."""
    since, until = field.metadata.get(SINCE), field.metadata.get(UNTIL)
    return (since is None or revision >= since) and (until is None or until >= revision)


def _plain(kind: type, *, wanted: str) -> Callable[[Any, Any], Any]:
    """Make a hook that accepts exactly one JSON type."""

    def structure(value: Any, _: Any) -> Any:
        # bool is an int to Python, not to JSON.
        if type(value) is kind:
            return value
        raise TypeError(f"expected {wanted}")

    return structure


def _strings(value: Any, _: Any) -> dict[str, str]:
    if isinstance(value, dict):
        found = cast("dict[str, str]", value)
        if all(type(item) is str for item in found.values()):
            return found
    raise TypeError("expected an object of strings")


def _number(value: Any, _: Any) -> float:
    if type(value) in {int, float}:
        return cast("float", value)
    raise TypeError("expected a number")


def _id_or_token(value: Any, target: Any) -> int | str | None:
    if type(value) in {int, str} or (value is None and types.NoneType in get_args(target)):
        return cast("int | str | None", value)
    raise TypeError("expected a string or an integer")


def _is_id_or_token(target: Any) -> bool:
    """Tell whether the type is an id or a token, optional or not."""
    return set(get_args(target)) - {types.NoneType} == {int, str}


def _overrides(cls: type, converter: cattrs.Converter, revision: Revision) -> dict[str, Any]:
    marks: dict[str, Any] = {}
    for field in attrs.fields(attrs.resolve_types(cls)):
        if field.name == EXTRA:
            marks[field.name] = override(omit=True)
            continue
        before = _shaped(field, revision)
        marks[field.name] = override(
            rename=wire_name(field),
            omit=not in_revision(field, revision),
            omit_if_default=field.default is not attrs.NOTHING
            and not field.metadata.get(ALWAYS, False),
            unstruct_hook=None
            if before is None
            else _shaping(before, converter.get_unstructure_hook(field.type)),
        )
    return marks


def _shaped(field: attrs.Attribute[Any], revision: Revision) -> Before | None:
    """What the revision takes only after a change of its value, if this field is such."""
    before: Before | None = field.metadata.get(BEFORE)
    return (
        before if before and in_revision(field, revision) and revision < before.revision else None
    )


def _shaping(before: Before, plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if plain is _same:
        return before.shape

    def unstructure(value: Any) -> Any:
        shaped = before.shape(value)
        return ABSENT if shaped is ABSENT else plain(shaped)

    return unstructure


def _wire_names(cls: Any) -> frozenset[str]:
    """The keys that mean something to a class, in whatever revision."""
    return frozenset(wire_name(field) for field in attrs.fields(cls) if field.name != EXTRA)


def _keeps_extra(cls: Any) -> bool:
    return any(field.name == EXTRA for field in attrs.fields(cls))


def _with_extra(plain: Callable[[Any], Any], known: frozenset[str]) -> Callable[[Any], Any]:
    """Add the keys that the class does not know to what it is written as."""

    def unstructure(value: Any) -> Any:
        made = plain(value)
        if value.extra:
            made.update((key, item) for key, item in value.extra.items() if key not in known)
        return made

    return unstructure


def _is_wire_class(cls: Any) -> bool:
    return isinstance(cls, type) and attrs.has(cls)


_CONTENT_UNIONS = tuple(set(get_args(union)) for union in (ContentBlock, SamplingBlock))


def _is_optional(target: Any) -> bool:
    return (
        get_origin(target) in {Union, types.UnionType}
        and len(get_args(target)) == 2
        and types.NoneType in get_args(target)
    )


def _is_content(target: Any) -> bool:
    if get_origin(target) not in {Union, types.UnionType}:
        return False
    return set(get_args(target)) in _CONTENT_UNIONS


def _build(revision: Revision) -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)
    _register_values(converter)
    _register_classes(converter, revision)
    _register_collections(converter)  # last: it looks up how the classes are read
    return converter


def _register_values(converter: cattrs.Converter) -> None:
    converter.register_structure_hook(str, _plain(str, wanted="a string"))
    converter.register_structure_hook(int, _plain(int, wanted="an integer"))
    converter.register_structure_hook(bool, _plain(bool, wanted="true or false"))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook_func(_is_id_or_token, _id_or_token)
    converter.register_structure_hook_func(
        lambda t: t == JSONObject, _plain(dict, wanted="an object")
    )
    converter.register_structure_hook_func(lambda t: t == dict[str, str], _strings)
    converter.register_structure_hook_func(lambda t: t is object, lambda value, _: value)
    converter.register_unstructure_hook_func(lambda t: t == JSONObject or t is object, _same)
    converter.register_unstructure_hook(msgspec.Raw, _same)
    converter.register_unstructure_hook(dict, _same)


def _same(value: Any) -> Any:
    return value


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise TypeError("expected an object")


def _register_collections(converter: cattrs.Converter) -> None:
    def structure_list(target: Any) -> Callable[[Any, Any], Any]:
        # cattrs would walk over anything that can be walked over, a string for one.
        plain = list_structure_factory(target, converter)

        def structure(value: Any, target: Any) -> Any:
            if not isinstance(value, list):
                raise TypeError("expected an array")
            return plain(value, target)

        return structure

    converter.register_structure_hook_factory(_is_list, structure_list)
    converter.register_structure_hook_func(
        lambda t: get_origin(t) in {Union, types.UnionType} and msgspec.Raw in get_args(t),
        lambda value, t: converter.structure(
            value, next(a for a in get_args(t) if a is not msgspec.Raw)
        ),
    )

    def structure_content(target: Any) -> Callable[[Any, Any], Any]:
        kinds = {
            getattr(cls, KIND): (converter.get_structure_hook(cls), cls) for cls in get_args(target)
        }

        def structure(value: Any, _: Any) -> Any:
            tag = _object(value).get("type")
            if type(tag) is not str or tag not in kinds:
                raise TypeError("unknown content type")
            plain, cls = kinds[tag]
            return plain(value, cls)

        return structure

    def structure_optional(target: Any) -> Callable[[Any, Any], Any]:
        (inner,) = set(get_args(target)) - {types.NoneType}
        plain = converter.get_structure_hook(inner)

        def structure(value: Any, _: Any) -> Any:
            return None if value is None else plain(value, inner)

        return structure

    converter.register_structure_hook_factory(_is_content, structure_content)
    converter.register_structure_hook_factory(_is_optional, structure_optional)
    blocks = list_structure_factory(SamplingBlocks, converter)
    converter.register_structure_hook_func(
        lambda t: t == SamplingBlocks,
        lambda value, t: blocks(value if isinstance(value, list) else [value], t),
    )
    converter.register_unstructure_hook_func(lambda t: t == SamplingBlocks, _one_or_many(converter))


def _one_or_many(converter: cattrs.Converter) -> Callable[[Any], Any]:
    def unstructure(value: list[Any]) -> Any:
        plain = [converter.unstructure(block) for block in value]
        return plain[0] if len(plain) == 1 else plain

    return unstructure


def _is_list(target: Any) -> bool:
    return get_origin(target) is list


def _register_classes(converter: cattrs.Converter, revision: Revision) -> None:
    def unstructure_class(cls: Any) -> Callable[[Any], Any]:
        tag = getattr(cls, KIND, None)
        since = getattr(cls, KIND_SINCE, None)
        if since is not None and not revision >= since:
            return _as_text(converter)
        plain = make_dict_unstructure_fn(cls, converter, **_overrides(cls, converter, revision))
        shaped = [wire_name(f) for f in attrs.fields(cls) if _shaped(f, revision)]
        if shaped:
            plain = _without_absent(plain, shaped)
        if tag is not None:
            return lambda value: {"type": tag, **plain(value)}
        return _with_extra(plain, _wire_names(cls)) if _keeps_extra(cls) else plain

    def structure_class(cls: Any) -> Callable[[Any, Any], Any]:
        # Fields of other revisions are read too when they come: tolerant in, strict out.
        renames: dict[str, Any] = {
            field.name: override(omit=True)
            if field.name == EXTRA
            else override(rename=wire_name(field))
            for field in attrs.fields(cls)
        }
        plain = make_dict_structure_fn(cls, converter, **renames)
        known = _wire_names(cls)
        keeps = _keeps_extra(cls)

        def structure(value: Any, target: Any) -> Any:
            fields = _object(value)
            made = plain(fields, target)
            if keeps and not known.issuperset(fields):
                extra = {k: v for k, v in fields.items() if k not in known}
                made = attrs.evolve(made, extra=extra)
            return made

        return structure

    converter.register_unstructure_hook_factory(_is_wire_class, unstructure_class)
    converter.register_structure_hook_factory(_is_wire_class, structure_class)


def _as_text(converter: cattrs.Converter) -> Callable[[Any], Any]:
    """Write a block that the revision does not have; who shall see it stays the same."""

    def unstructure(value: Any) -> Any:
        notes = getattr(value, "annotations", None)
        return converter.unstructure(TextContent(text=in_words(value), annotations=notes))

    return unstructure


def _without_absent(plain: Callable[[Any], Any], shaped: list[str]) -> Callable[[Any], Any]:
    """Leave out what came to nothing on its way to the revision."""

    def unstructure(value: Any) -> Any:
        made = plain(value)
        for name in shaped:
            if made.get(name) is ABSENT:
                del made[name]
        return made

    return unstructure


_CONVERTERS: dict[Revision, cattrs.Converter] = {}


def converter_for(revision: Revision) -> cattrs.Converter:
    """The converter of a revision; made on first use, then kept."""
    found = _CONVERTERS.get(revision)
    if found is None:
        found = _CONVERTERS[revision] = _build(revision)
    return found


def to_wire(value: object, revision: Revision) -> JSONObject:
    """Project a wire object onto what `revision` knows."""
    return cast("JSONObject", converter_for(revision).unstructure(value))


def from_wire(
    value: Mapping[str, object], cls: type[T], revision: Revision, *, where: str = "params"
) -> T:
    """Read a wire object.

    Raises:
        InvalidParamsError: naming each place that does not fit, never echoing its value.
    """
    try:
        return converter_for(revision).structure(value, cls)
    except (cattrs.BaseValidationError, TypeError) as error:
        faults = itertools.islice(_faults(error, where), MAX_FAULTS)
        raise InvalidParamsError("; ".join(faults)) from error


def _faults(error: BaseException, where: str) -> Iterator[str]:
    """Each place that does not fit, spelled as on the wire, and what is wrong there."""
    match error:
        case cattrs.ClassValidationError():
            names = {field.name: wire_name(field) for field in attrs.fields(error.cl)}
            for fault, note in error.group_exceptions()[0]:
                yield from _faults(fault, f"{where}.{names[note.name]}")
        case cattrs.IterableValidationError():
            for fault, place in error.group_exceptions()[0]:
                yield from _faults(fault, f"{where}[{place.index}]")
        case KeyError():
            yield f"{where} is missing"
        case _:
            yield f"{where}: {error}"


__all__ = ["REVISIONS", "camel", "converter_for", "from_wire", "in_revision", "to_wire"]
