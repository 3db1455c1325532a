"""The page on the Python client: its snippets run from the top, and print what they say."""

from __future__ import annotations

from pathlib import Path

from support.guide import snippets

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "python-client.md"


def test_page_can_be_followed(client_world, monkeypatch, capsys):
    """A reader types the snippets one after the other."""
    monkeypatch.setenv("KUBECONFIG", str(client_world.kubeconfig))
    names = {"__name__": "__main__"}
    printed = {}
    for snippet in snippets(PAGE):
        exec(compile(snippet.text, str(snippet), "exec"), names)  # noqa: S102 - our own page
        printed[snippet.line] = capsys.readouterr().out
        assert all(words in printed[snippet.line] for words in snippet.printed()), snippet
    names["client"].close()

    declared, block, steps, wrong = printed.values()
    assert "maxReplicas: 6" in declared
    assert "worker-3 Ready mnist-worker-3" in block
    assert "New: worker-2 and worker-3" in steps
    assert "cluster ViewChanged updated" in steps  # what was done in the last second may be told a second later
    assert "there is no TFCluster mnist" in wrong
