"""A Python source without what only people read: the form in which the resolver goes into pods.

It decides what is left out: docstrings, comments that have a line of their own, imports for type checkers alone, and
indentation beyond what Python needs.  Each line keeps its number, so that a traceback from a pod fits the source in the
repository.
"""

from __future__ import annotations

import ast
import io
import tokenize
from typing import Final

_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_DEEPER: Final = {tokenize.INDENT: 1, tokenize.DEDENT: -1}
_NO_STATEMENT: Final = frozenset({tokenize.ENCODING, tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER})


def lean_source(source: bytes) -> bytes:
    """Leave comments and docstrings out of a module.

    Args:
        source: the module, in UTF-8.

    Returns:
        The same program, line by line.

    Raises:
        SyntaxError: the source is no Python.
    """
    nodes = list(ast.walk(ast.parse(source)))
    lines = source.split(b"\n")
    depths, within_text = _layout(source)
    for node in nodes:
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            last = text.end_lineno or text.lineno
            after = lines[last - 1][text.end_col_offset :]
            # NB: a docstring may be all that a class or a function has, so an empty one stays.
            lines[text.lineno - 1] = lines[text.lineno - 1][: text.col_offset] + b'""' + after
            _blank(lines, text)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse:
            lines[node.lineno - 1] += b"pass"
            _blank(lines, node)
    for number, line in enumerate(lines):
        if number not in within_text:
            bare = line.lstrip()
            lines[number] = b"" if bare.startswith(b"#") else b" " * depths.get(number, 0) + bare
    return b"\n".join(lines)


def _blank(lines: list[bytes], node: ast.stmt) -> None:
    """Leave of a statement its first line alone."""
    for number in range(node.lineno, node.end_lineno or node.lineno):
        lines[number] = b""


def _layout(source: bytes) -> tuple[dict[int, int], set[int]]:
    """Tell how deep each statement is, by the line where it begins, and which lines begin within a text."""
    depths: dict[int, int] = {}
    within_text: set[int] = set()
    depth, begins = 0, True
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        within_text.update(range(token.start[0], token.end[0]))
        if token.type in _DEEPER:
            depth += _DEEPER[token.type]
        elif token.type == tokenize.NEWLINE:
            begins = True
        elif begins and token.type not in _NO_STATEMENT:
            depths[token.start[0] - 1] = depth
            begins = False
    return depths, within_text
