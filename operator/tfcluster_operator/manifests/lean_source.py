"""A Python source without what only people read: the form in which the resolver goes into pods.

It decides what is left out: docstrings, comments that have a line of their own, the types of arguments and results,
imports for type checkers alone, and indentation beyond what Python needs.  Each line keeps its number, so that a
traceback from a pod fits the source in the repository.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from typing import Final

_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: Row, first and last column, and what stands there instead.
_Edit = tuple[int, int, int, bytes]
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
    edits = {edit for node in nodes for edit in _edits(lines, node)}
    # NB: from right to left, so that no edit moves the next one.
    for row, start, end, instead in sorted(edits, reverse=True):
        lines[row] = lines[row][:start] + instead + lines[row][end:]
    for number, line in enumerate(lines):
        if number not in within_text:
            bare = line.lstrip()
            lines[number] = b"" if bare.startswith(b"#") else b" " * depths.get(number, 0) + bare
    return b"\n".join(lines)


def _edits(lines: list[bytes], node: ast.AST) -> Iterator[_Edit]:
    """Say what of a node's lines becomes what: row, first and last column, and the text instead."""
    if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        text = node.body[0]
        last = (text.end_lineno or text.lineno) - 1
        # NB: a docstring may be all that a class or a function has, so an empty one stays.
        yield from _shortened(lines, text, text.col_offset, b'""' + lines[last][text.end_col_offset :])
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse:
        yield from _shortened(lines, node, len(lines[node.lineno - 1]), b"pass")
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
        of = node.returns
        yield from _without(of, lines[of.lineno - 1].rfind(b"->", 0, of.col_offset))
    if isinstance(node, ast.arg) and node.annotation is not None and node.annotation.lineno == node.lineno:
        yield from _without(node.annotation, node.col_offset + len(node.arg.encode()))


def _shortened(lines: list[bytes], node: ast.stmt, column: int, instead: bytes) -> Iterator[_Edit]:
    """Leave of a statement its first line, with another end."""
    first = node.lineno - 1
    yield first, column, len(lines[first]), instead
    for row in range(first + 1, node.end_lineno or 0):
        yield row, 0, len(lines[row]), b""


def _without(annotation: ast.expr, start: int) -> Iterator[_Edit]:
    """Cut the type of an argument or a result, where it is on one line."""
    if start >= 0 and annotation.lineno == annotation.end_lineno:
        yield annotation.lineno - 1, start, annotation.end_col_offset or 0, b""


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
