"""The pages of docs/ agree with the code, the examples and the generated parts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import tfcluster_resolver
from local_kubernetes import binaries
from scripts import docs_site, reference
from tfcluster_resolver import errors

ROOT = Path(__file__).resolve().parents[2]


# --- each reason in troubleshoot.md links to its row in conditions.md

TROUBLE = (ROOT / "docs" / "how-to" / "troubleshoot.md").read_text(encoding="utf-8")
CONDITIONS = (ROOT / "docs" / "reference" / "conditions.md").read_text(encoding="utf-8")
#: The text of docs/reference/conditions.md by heading, in the form of links.
_PARTS = re.split(r"^#{2,3} (.+)$", CONDITIONS, flags=re.MULTILINE)
SECTIONS = {heading.lower(): text for heading, text in zip(_PARTS[1::2], _PARTS[2::2], strict=True)}


def test_reasons_are_where_their_links_lead() -> None:
    links = re.findall(r"\[`(\w+)`\]\([./a-z]+conditions\.md#(\w+)\)", TROUBLE)
    assert len(links) > 15
    assert [(reason, heading) for reason, heading in links if f"| `{reason}` |" not in SECTIONS[heading]] == []


def test_every_reason_of_not_being_ready_is_on_the_page() -> None:
    reasons = set(re.findall(r"^\| False \| `(\w+)` \|", SECTIONS["ready"], re.MULTILINE))
    assert reasons
    assert reasons - set(re.findall(r"`(\w+)`", TROUBLE)) == set()


def test_errors_on_the_page_are_those_of_the_resolver() -> None:
    named = set(re.findall(r"`(\w+(?:Error|Warning))`", TROUBLE))
    assert named
    assert named <= set(vars(errors))


# --- the sources of older Kubernetes


def test_modules_of_older_kubernetes_follow_its_version():
    for minor in binaries.older_minors():
        version = binaries.kubernetes_version(minor)
        text = (binaries.OLDER_SOURCE / f"{minor}.mod").read_text(encoding="utf-8")
        replaced = [line.split() for line in text.splitlines() if " => " in line]
        assert version.startswith(f"v{minor}.")
        assert len(replaced) >= 30
        assert {(words[0] == words[2], words[3]) for words in replaced} == {(True, "v0." + version.removeprefix("v1."))}


# --- each example is on its page, and their Dockerfile builds what the tests run

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
DOCKERFILE = (ROOT / "examples" / "custom-image" / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_is_in_the_docs_and_says_how_to_run_it(example: Path) -> None:
    listed = re.findall(
        r"^\| \[([\w.-]+)\]", (ROOT / "docs" / "get-started" / "examples.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    comment = re.match(r"(?:#.*\n)+", example.read_text(encoding="utf-8"))
    assert listed.count(example.name) == 1
    assert f"kubectl apply -f examples/{example.name}" in comment[0]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_programs_of_an_example_are_there(example: Path) -> None:
    for program in re.findall(r"/opt/examples/([\w.]+)", example.read_text(encoding="utf-8")):
        assert (ROOT / "examples" / program).is_file(), program


def test_custom_image_copies_existing_files() -> None:
    copied = re.findall(r"^COPY (\S+) (\S+)$", DOCKERFILE, re.MULTILINE)
    assert [name for name, _ in copied if not (ROOT / "examples" / name).is_file()] == []
    manifest = yaml.safe_load((ROOT / "examples" / "custom-image.yaml").read_text(encoding="utf-8"))
    (container,) = manifest["spec"]["jobs"]["worker"]["template"]["spec"]["containers"]
    assert container["command"][1] in {place + name for name, place in copied}


def test_custom_image_has_the_versions_of_the_tests() -> None:
    wanted = (ROOT / "examples" / "custom-image" / "requirements.txt").read_text(encoding="utf-8").split()
    tested = (ROOT / "requirements" / "tensorflow.in").read_text(encoding="utf-8").split()
    assert set(wanted) <= set(tested)
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE)[-1] == "65532:65532"


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_parameter_servers_of_a_page_run_a_server(page: Path) -> None:
    """A ps does not run the user's program: it has ``taskServer``, or a command, or shares the template of a chief."""
    for text in re.findall(r"^```yaml[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for manifest in yaml.safe_load_all(text) if "kind: TFCluster" in text else ():
            jobs = manifest["spec"]["jobs"] if manifest["kind"] == "TFCluster" else {}
            if "ps" in jobs and jobs["ps"]["template"] is not jobs.get("chief", {}).get("template"):
                (main, *_) = jobs["ps"]["template"]["spec"]["containers"]
                assert jobs["ps"].get("taskServer") or main.get("command"), f"{page.name}: {manifest['metadata']}"


# --- the docs site: links and fences after its hook


@pytest.mark.parametrize(
    ("target", "page"),
    [
        ("metrics.md#names", "metrics.md#names"),
        ("../../examples/gpu.yaml", "../source/examples/gpu.yaml.md"),
        ("../../examples", "../source/examples/index.md"),
        ("../../CONTRIBUTING.md", "../source/CONTRIBUTING.md"),
        ("../../charts/tfcluster-operator/README.md", "../source/charts/tfcluster-operator/readme.md"),
        ("https://kubernetes.io", "https://kubernetes.io"),
        ("#here", "#here"),
        ("../no/such/file", "../no/such/file"),
    ],
)
def test_links_out_of_the_docs_lead_to_pages(target: str, page: str) -> None:
    """A link to a file of the repository leads to its page, and MkDocs checks every other unchanged link."""
    assert (
        docs_site.relinked(f"[text]({target})", "docs/reference/conditions.md", "reference/conditions.md")
        == f"[text]({page})"
    )
    defined = docs_site.relinked(f"[text]: {target}\n", "docs/reference/conditions.md", "reference/conditions.md")
    assert defined == f"[text]: {page}\n"


def test_links_of_files_elsewhere_lead_back() -> None:
    """A page that is generated from a file outside of docs/ has links relative to its place."""
    place = "charts/tfcluster-operator/README.md"
    page = docs_site.page_of(place)
    assert docs_site.place_of(page) == place
    assert (
        docs_site.relinked("[x](../../docs/operate/operating.md)", place, page) == "[x](../../../operate/operating.md)"
    )


def test_fences_lose_their_notes_and_keep_titles() -> None:
    text = '```console e2e=test_x\n$ ls\n```\n```yaml title="a.yaml"\na: 1\n```\n'
    assert docs_site.without_notes(text) == '```console\n$ ls\n```\n```yaml title="a.yaml"\na: 1\n```\n'


def test_a_file_with_fences_is_shown_whole() -> None:
    shown = docs_site.shown("tests/support/guide.py")
    assert re.search(r"^`{4,}python\n", shown, re.MULTILINE)
    assert shown.count("\n````") == 2


def test_every_page_is_in_the_navigation() -> None:
    nav = re.search(r"^nav:\n((?: .*\n)+)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    named = re.findall(r"([\w/.-]+\.md)$", nav, re.MULTILINE)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(name for name in named if not name.startswith("source/")) == sorted(pages)
    assert [name for name in named if not (ROOT / docs_site.place_of(name)).is_file()] == []


# --- the generated pages

DEFINITION = yaml.safe_load(reference.CRD.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [reference.API, reference.COMMANDS], ids=lambda path: path.name)
def test_generated_page_is_up_to_date(page: Path) -> None:
    assert reference.same(page.read_text(encoding="utf-8"), reference.pages()[page])


def test_another_word_makes_a_page_stale() -> None:
    assert reference.same("one two\n", "one\ntwo\n")
    assert not reference.same("one two\n", "one three\n")


def described(schema: dict[str, Any]) -> Iterator[str]:
    """Return the description of every field, except Kubernetes' own schemas and internal fields."""
    for name, part in schema.get("properties", {}).items():
        yield part["description"]
        # PodSpec has containers, LabelSelector matchLabels.
        if name != "internal" and not {"containers", "matchLabels"} & part.get("properties", {}).keys():
            yield from described(part)
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from described(inner)


def test_every_field_of_ours_is_on_the_page() -> None:
    root = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    page = reference.API.read_text(encoding="utf-8").replace("\\|", "|").replace("&lt;", "<")
    fields = [words for part in ("spec", "status") for words in described(root[part])]
    assert len(fields) > 50
    assert [words for words in fields if words not in page] == []


def test_every_public_name_is_on_the_page_of_the_python_api() -> None:
    page = (ROOT / "docs" / "reference" / "python-resolver.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^::: (?:tfcluster_resolver\.(?:[\w.]+\.)?)(\w+)()$", page, re.MULTILINE))
    assert set(tfcluster_resolver.__all__) - {"__version__"} == set(shown)


def test_every_command_is_on_the_page() -> None:
    page = reference.COMMANDS.read_text(encoding="utf-8")
    listed = page.partition("positional arguments:")[2].partition("options:")[0]
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == sorted(
        re.findall(r"^ {4}(\w+) ", listed, re.MULTILINE), key=reference.ORDER.index
    )
