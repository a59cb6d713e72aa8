"""XML as trees: what is written, what is read, and what is refused in both directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.runtime.adapters import xml_tree
from mcp_trio.runtime.adapters.xml_tree import XmlError, check_tree, read_xml, write_xml

HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
TREE = {"order": {"@id": "7", "item": ["a", "b"], "note": {"@lang": "en", "#text": "hi"}}}
TEXT = '<order id="7"><item>a</item><item>b</item><note lang="en">hi</note></order>'


def test_a_tree_is_a_document_and_back():
    assert write_xml(TREE).decode() == HEAD + TEXT
    assert read_xml(TEXT.encode()) == TREE


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ({"a": None}, "<a></a>"),
        ({"a": {"b": None, "@c": None, "#text": None}}, "<a></a>"),
        ({"a": {"b": [1, None, True, 1.5]}}, "<a><b>1</b><b>true</b><b>1.5</b></a>"),
        ({"a": {"b": []}}, "<a></a>"),
        ({"s:a": {"@xmlns:s": "u"}}, '<s:a xmlns:s="u"></s:a>'),
        ({"a": "</a><evil/>&x;]]>"}, "<a>&lt;/a&gt;&lt;evil/&gt;&amp;x;]]&gt;</a>"),
        ({"a": {"@b": "\"'><\n\t\r"}}, '<a b="&quot;\'&gt;&lt;&#10;&#9;&#13;"></a>'),
        ({"a": "é\U0001f600\r\n"}, "<a>é\U0001f600&#13;\n</a>"),
    ],
)
def test_values_are_written_so_that_they_stay_values(tree, text):
    assert write_xml(tree).decode() == HEAD + text


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"a": 1, "b": 2},
        "text",
        [],
        {"a": [1, 2]},
        {"#text": "x"},
        {"@a": "x"},
        {"a><evil": 1},
        {"a": {"b c": 1}},
        {"a": {"1": 1}},
        {"a": {"@": 1}},
        {"a": {'@b="x" c': 1}},
        {"a": {"é": 1}},
        {"a": {"!DOCTYPE": 1}},
        {"a": {"b:c:d": 1}},
        {"a": {"@b": {"c": 1}}},
        {"a": {"#text": ["x"]}},
        {"a": [[1]]},
        {"a": "\x00"},
        {"a": "\x0b"},
        {"a": "\ufffe"},
        {"a": {"@b": "\ud800"}},
    ],
)
def test_what_is_no_document_is_refused(tree):
    with pytest.raises(ValueError, match=r"\w"):
        write_xml(tree)


def test_depth_is_bounded_in_both_directions():
    tree: object = "x"
    for _ in range(101):
        tree = {"a": tree}
    with pytest.raises(ValueError, match="100 levels"):
        write_xml(tree)
    with pytest.raises(XmlError, match="100 levels"):
        read_xml(b"<a>" * 101 + b"</a>" * 101)
    assert read_xml(b"<a>" * 100 + b"</a>" * 100)


@pytest.mark.parametrize("attributes", [False, True])
def test_the_number_of_nodes_is_bounded(monkeypatch, attributes):
    monkeypatch.setattr(xml_tree, "MAX_NODES", 50)
    made = b"".join(b' a%d="1"' % n for n in range(60))
    text = b"<a%s/>" % made if attributes else b"<a>" + b"<b/>" * 60 + b"</a>"
    with pytest.raises(XmlError, match="50 elements"):
        read_xml(text)


BOMB = b"""<!DOCTYPE a [<!ENTITY l "lol"><!ENTITY m "&l;&l;&l;&l;">]><a>&m;</a>"""
OUTSIDE = b"""<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>"""


@pytest.mark.parametrize(
    "text",
    [BOMB, OUTSIDE, b'<!DOCTYPE a SYSTEM "http://127.0.0.1/x.dtd"><a/>', b"<!DOCTYPE a><a/>"],
)
def test_document_types_are_refused(text):
    with pytest.raises(XmlError, match="document type"):
        read_xml(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"text",
        b"<a>",
        b"<a></b>",
        b"<a/><b/>",
        b"<a>&unknown;</a>",
        b'<a b="1" b="2"/>',
        b"<a>\x00</a>",
        b'<?xml version="1.0" encoding="no-such"?><a/>',
        b"<a>\xff</a>",
    ],
)
def test_what_is_not_well_formed_is_refused(text):
    with pytest.raises(XmlError):
        read_xml(text)


def test_what_a_tree_cannot_say_is_left_out():
    text = b"<!-- c --><a>\n  <b>1</b><?p i?><c/>x<b>2</b> y <![CDATA[<z>]]></a>"
    tree = read_xml(text)
    assert set(tree["a"]) == {"b", "c", "#text"}
    assert (tree["a"]["b"], tree["a"]["c"]) == (["1", "2"], "")
    assert tree["a"]["#text"].split() == ["x", "y", "<z>"]
    assert read_xml(b"<a> <b/> </a>") == {"a": {"b": ""}}
    assert read_xml(b"<a>&#60;&amp;&gt;</a>") == {"a": "<&>"}


def test_encodings_come_from_the_transport_or_the_document():
    assert read_xml("<a>é</a>".encode("latin-1"), charset="iso-8859-1") == {"a": "é"}
    latin = '<?xml version="1.0" encoding="iso-8859-1"?><a>é</a>'.encode("latin-1")
    assert read_xml(latin) == {"a": "é"}
    assert read_xml(latin, charset="utf-7") == {"a": "é"}


def test_names_in_a_mapping_are_judged_before_the_first_call():
    check_tree("=args.x")
    check_tree({"expr": "args.x"})
    check_tree({"a": {"b": [{"@c": "=args.x"}], "#text": {"expr": "args.y"}}})
    for tree in ({"a b": 1}, {"a": 1, "b": 2}, {"a": {"b": [{"c d": 1}]}}, {"a": {"@": 1}}):
        with pytest.raises(ValueError, match="name"):
            check_tree(tree)


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,5}", fullmatch=True)
# What readers may change by right: line ends, and blanks beside children.
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), min_size=1).map(
    lambda text: f"x{text}x"
)
VALUES = st.recursive(
    TEXTS | st.just(""),
    lambda below: (
        st.dictionaries(NAMES, below, min_size=1, max_size=3)
        | st.dictionaries(NAMES.map("@{}".format), TEXTS, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=1))
def test_what_is_written_is_read_as_the_same_tree(tree):
    assert read_xml(write_xml(tree)) == tree
