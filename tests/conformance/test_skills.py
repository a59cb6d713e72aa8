"""What a host owes its model before it loads a skill."""

import hashlib

import attrs
import pytest

from tests.conformance import skills

MAIN = "---\nname: pdf\ndescription: Fill in: forms\n---\n\nBody.\n"
FORMS = "Fields.\n"
HOME = "skill://pdf"


def resource(name, text):
    data = text.encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return {"uri": f"{HOME}/{name}", "digest": digest, "size": len(data)}


ENTRY = {
    "uri": f"{HOME}/SKILL.md",
    "frontmatter": {"name": "pdf", "description": "Fill in: forms"},
    "resources": [resource("references/FORMS.md", FORMS), resource("SKILL.md", MAIN)],
}


@attrs.define
class Server:
    """Has one skill, in two pages of a list, and remembers what was read of it."""

    files: dict
    read: list = attrs.field(factory=list)

    async def call(self, method, params=None):
        if method == "skills/list":
            return {"skills": [ENTRY]} if params else {"skills": [], "nextCursor": "more"}
        self.read.append(params["uri"].removeprefix(f"{HOME}/"))
        return {"contents": [{"uri": params["uri"], "text": self.files[self.read[-1]]}]}


async def test_an_honest_skill_is_loaded_its_own_description_first():
    server = Server({"SKILL.md": MAIN, "references/FORMS.md": FORMS})
    (entry,) = await skills.listed(server)
    assert server.read == []
    files = await skills.load(server, entry)
    assert server.read == ["SKILL.md", "references/FORMS.md"]
    assert files[entry["uri"]].decode() == MAIN


@pytest.mark.parametrize(
    ("text", "entry", "why"),
    [
        (MAIN.replace("Body", "Evil"), ENTRY, "digest"),
        (MAIN + "more\n", ENTRY, "bytes"),
        (MAIN, {**ENTRY, "frontmatter": {"name": "pdf"}}, "describes itself otherwise"),
    ],
    ids=["digest", "size", "frontmatter"],
)
async def test_a_forged_skill_is_read_no_further(text, entry, why):
    server = Server({"SKILL.md": text, "references/FORMS.md": FORMS})
    with pytest.raises(skills.ForgedSkillError, match=why):
        await skills.load(server, entry)
    assert server.read == ["SKILL.md"]


@pytest.mark.parametrize("text", ["", "Body", "---\nname: pdf\n"])
def test_a_file_without_a_closed_frontmatter_has_none(text):
    assert skills.frontmatter(text) == {}
