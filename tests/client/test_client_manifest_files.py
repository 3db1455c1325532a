"""Reading manifests: what kubectl reads, read as Kubernetes reads it, and each problem with its file and line."""

import io
import sys
from pathlib import Path

import pytest

from tfcluster.errors import ManifestError
from tfcluster.manifest import files

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def read(tmp_path):
    def read_text(text: str | bytes) -> files.Manifests:
        file = tmp_path / "cluster.yaml"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return files.read([file])

    return read_text


def test_examples_are_one_cluster_each():
    for file in EXAMPLES.glob("*.yaml"):
        found = files.read([file])
        assert found.only().kind == "TFCluster", file
        assert {one.kind for one in found.others} <= {"PersistentVolumeClaim", "HorizontalPodAutoscaler"}


def test_folder_means_its_files():
    sources = [one.source for one in files.read([EXAMPLES]).clusters]
    assert sources == sorted(str(file) for file in EXAMPLES.glob("*.yaml"))


def test_standard_input_is_named_so(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"kind: TFCluster\nmetadata: {name: one}")))
    found = files.read(["-"]).only()
    assert (found.name, found.place(("metadata", "name"))) == ("one", "standard input:2")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *(("0644", 420), ("0o17", 15), ("0x1F", 31), ("08", 8), ("1_000", 1000), ("1e3", 1000), ("1.5", 1.5)),
        *(("12:30", "12:30"), ("2026-01-01", "2026-01-01"), ("1.2.3", "1.2.3"), ("=", "=")),
        *(("yes", True), ("n", False), ("'yes'", "yes"), ("~", None), ("", None)),
    ],
)
def test_scalars_mean_what_they_mean_to_kubernetes(read, written, meant):
    body = read(f"kind: X\nvalue: {written}\n").others[0].body
    assert body["value"] == meant
    assert type(body["value"]) is type(meant)


@pytest.mark.parametrize(
    "text", ["\ufeffkind: X\r\na: b\r\n", '\ufeff{"kind": "X",\t"a": "b"}', "%YAML 1.1\n---\nkind: X\na: b"]
)
def test_marks_and_line_ends_of_other_systems_are_read(read, text):
    assert read(text).others[0].body == {"kind": "X", "a": "b"}


def test_keys_are_texts_and_aliases_and_merges_are_followed(read):
    text = "kind: X\nof: {0: a, 1: b}\nbase: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\nagain: *base"
    body = read(text).others[0].body
    expected = {"of": {"0": "a", "1": "b"}, "more": {"a": 1, "b": 3}, "again": {"a": 1, "b": 2}}
    assert {key: body[key] for key in expected} == expected


def test_lists_and_documents_are_taken_apart_with_their_lines(read):
    lists = "# words\n---\nkind: List\nitems:\n- kind: A\n- kind: List\n  items:\n  - kind: B\n"
    text = f"{lists}---\n---\nkind: C\nx:\n  y: 1\n"
    a, b, c = read(text).others
    assert [(one.kind, one.line) for one in (a, b, c)] == [("A", 5), ("B", 8), ("C", 11)]
    assert (c.line_of(("x", "y")), c.line_of(("x", "z")), c.line_of(("z",))) == (13, 12, 11)


def test_json_documents_follow_each_other(read):
    first, second = read('{"kind": "A"}\n\n{"kind": "B"}\n').others
    assert [(one.kind, one.line) for one in (first, second)] == [("A", 1), ("B", 3)]


GROWING = "a: &a0 x\n" + "".join(f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: A\n\tb: c", "indent with spaces"),
        ("kind: A\nx: 1\nkind: B", '3: the key "kind" is in one object twice'),
        ("kind: A\nx: [1, 2", "did not find expected ',' or ']'"),
        ("kind: A\n---\n- b", "3: this is not an object"),
        ("kind: List\nitems:\n- kind: A\n- 3", "4: items[1] is not an object"),
        ("a: &a [*a]", "nested too deep"),
        ("a: *b", "undefined alias"),
        (GROWING, "aliases expand it"),
        ("a:\n  b: .nan", "2: .nan is not a number in JSON"),
        ("a: !!binary aGVsbG8=", "is not a JSON type"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        (b"a: \xe9", "not UTF-8 text"),
        (b"PK\x03\x04\x00", "not UTF-8 text"),
        ("? [a]\n: b", "a key must be a text"),
    ],
)
def test_unreadable_manifest_is_reported_with_its_line(read, text, problem):
    with pytest.raises(ManifestError) as refused:
        read(text)
    (told,) = refused.value.problems
    assert problem in told.rpartition("cluster.yaml:")[2]


def test_problems_of_all_files_are_reported_together(tmp_path):
    paths = [tmp_path / name for name in ("one.yaml", "two.yaml", "three.yaml")]
    paths[0].write_text("a: *b")
    paths[1].write_text("[")
    with pytest.raises(ManifestError) as refused:
        files.read(paths)
    places = [problem.partition(": ")[0].rpartition("/")[2] for problem in refused.value.problems]
    assert places == ["one.yaml:1", "two.yaml:2", "three.yaml"]


def test_url_and_empty_folder_have_different_messages(tmp_path):
    with pytest.raises(ManifestError, match="pipe it in") as refused:
        files.read(["https://example.test/cluster.yaml", tmp_path])
    assert "no file in this folder" in refused.value.problems[1]


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("", "the input is empty", "tfcluster create"),
        ("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}", "cluster.yaml:1: Deployment web", "-f"),
        ("apiVersion: kubeflow.org/v1\nkind: TFJob", "TFJob", "tfcluster convert"),
        ("kind: TFCluster\n---\nkind: TFCluster\nmetadata: {name: b}", "there are several", ""),
    ],
)
def test_only_says_what_is_there_instead_of_one_cluster(read, text, words, hint):
    with pytest.raises(ManifestError) as refused:
        read(text).only()
    assert words in str(refused.value)
    assert hint in refused.value.hint
