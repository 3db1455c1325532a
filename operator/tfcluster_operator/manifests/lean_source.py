"""A Python source without what only people read: the form in which the resolver goes into pods.

It decides what is left out: docstrings, and comments that have a line of their own.  Each line keeps its number, so
that a traceback from a pod fits the source in the repository.
"""

from __future__ import annotations

import ast
from typing import Final

_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


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
    within_text = {
        number
        for node in nodes
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and node.end_lineno is not None
        for number in range(node.lineno, node.end_lineno)
    }
    for number, line in enumerate(lines):
        if line.lstrip().startswith(b"#") and number not in within_text:
            lines[number] = b""
    for node in nodes:
        if not isinstance(node, _DOCUMENTED) or ast.get_docstring(node, clean=False) is None:
            continue
        text = node.body[0]
        last = text.end_lineno or text.lineno
        after = lines[last - 1][text.end_col_offset :]
        # NB: a docstring may be all that a class or a function has, so an empty one stays.
        lines[text.lineno - 1] = lines[text.lineno - 1][: text.col_offset] + b'""' + after
        for number in range(text.lineno, last):
            lines[number] = b""
    return b"\n".join(lines)
