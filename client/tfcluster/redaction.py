"""What a bug report leaves out of objects and texts: values of the environment, and what looks like a secret.

The rule errs on the side of leaving out: a value is kept where Kubernetes or we define what it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

LEFT_OUT: Final = "<left-out>"
#: Words in the name of a variable, a flag or a field whose value is a secret; a tokenizer has none.
_WORDS_OF_SECRETS: Final = (
    r"(?:passw(?:or)?d|passphrase|pwd|token(?!iz)|secret|credential|signature|cookie|authorization"
    r"|(?:api|access|private|account|encryption|signing|ssh|auth)[-_.]?key)"
)
#: Words that say so alone, or between hyphens and underscores: a keyboard has no secret, and what passes none.
_WHOLE_WORDS: Final = r"(?<![^\W_])(?:pass|pw|key|auth|dsn|sas|sig|creds?)(?:[_.-]?\d{1,4})?(?![^\W_])"
#: The length is bounded, so that no text takes long: a program may have written anything.
_SPELLED: Final = rf"[\w.-]{{0,60}}(?:{_WORDS_OF_SECRETS}|{_WHOLE_WORDS})[\w.-]{{0,60}}"
_NAMED: Final = re.compile(rf"(?i){_WORDS_OF_SECRETS}|{_WHOLE_WORDS}")
#: In quotes, or in the escaped quotes of JSON within JSON.
_QUOTED: Final = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|\\\"[^\"\\]*\\\""
#: A value, after the scheme that an HTTP header may begin with; a quote may lack its end where a text was cut.
_VALUE: Final = rf"(?:{_QUOTED}|\\?[\"']?(?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?[^\s\"',;&|)}}\]]+)"
#: What stands between a name and its value: of a name in quotes, a field of JSON, the end of the quotes, too.
_IS: Final = r"(?:\\?[\"'])?\s*(?:=>?|:(?!/))\s*"
_FIELD: Final = r"(?:\\?[\"']\s*(?:=>?|:(?!/))|\s*=>?)\s*"
#: What looks like a secret in any text; the first group, where there is one, is kept.
_PATTERNS: Final = (
    re.compile(r"()-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"([a-zA-Z][\w+.-]{0,20}://)[^\s/'\"]{1,400}(?=@)"),
    re.compile(rf"(?i)(authorization{_IS}\\?[\"']?)(?:[\w-]{{1,30}}[ \t]+)?[^\s\"',;&|)}}\]\\]+"),
    re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{6,}"),
    re.compile(rf"(?i)({_WORDS_OF_SECRETS}[\w.-]{{0,60}}{_IS}){_VALUE}"),
    re.compile(rf"(?i)({_WHOLE_WORDS}{_FIELD}){_VALUE}"),
    re.compile(rf"(?i)((?<![^\W_])pw:\s*){_VALUE}"),
    re.compile(rf"(?i)((?:^|\s)--?{_SPELLED}\s+)(?:{_QUOTED}|[^\s\"'-][^\s\"';|&]*)"),
    re.compile(rf"(?i)([\"']--?{_SPELLED}[\"'],\s*)(?:{_QUOTED})"),
    re.compile(r"((?:^|\s)(?:-u|--(?:proxy-)?user)[\s=]\s*[\"']?[\w.@-]{1,100}:)[^\s\"';|&]+"),
    # The forms of tokens: JWT, AWS, Google, Azure, and those of services that give theirs a beginning.
    re.compile(r"()\beyJ[\w-]{8,200}\.[\w-]{8,4000}\.[\w-]*"),
    re.compile(r"()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"()\b(?:AIza[\w-]{35}|ya29\.[\w.-]{16,}|GOCSPX-[\w-]{16,}|1//0[\w-]{30,})"),
    re.compile(r"()\b\w{3}8Q~[\w.~-]{31,40}"),
    re.compile(r"()\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abpr]-|pypi-|npm_|dckr_pat_|hvs\.)[\w-]{16,}"),
)
#: Whose annotations say what Kubernetes and we define; except for the one that holds a whole object once more.
_KNOWN_ANNOTATIONS: Final = re.compile(r"(?:[\w.-]+\.)?(?:kubernetes\.io|k8s\.io|tfcluster\.dev)/.*")
_COPY: Final = "kubectl.kubernetes.io/last-applied-configuration"
_WORDS: Final = frozenset({"args", "command"})
#: Maps whose values nobody but a driver knows.
_OF_DRIVERS: Final = frozenset({"volumeAttributes", "options", "data", "stringData", "binaryData"})
_USER_FLAGS: Final = frozenset({"-u", "--user", "--proxy-user"})
_FLAG: Final = re.compile(rf"(?i)--?(?:{_SPELLED})")


class Redaction:
    """Leaves secrets out."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        longest_first = sorted(set(known), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        """Leave out of a text what looks like a secret."""
        if self._known is not None:
            text = self._known.sub(LEFT_OUT, text)
        for pattern in _PATTERNS:
            text = pattern.sub(rf"\g<1>{LEFT_OUT}", text)
        return text

    def object(self, body: Mapping[str, Any], *, files: bool = False) -> dict[str, Any]:
        """Leave out of an object of the API what is, or may be, secret."""
        redacted: dict[str, Any] = self._mapping(body)
        if files:
            redacted["data"] = {name: self.text(text) for name, text in (body.get("data") or {}).items()}
        return redacted

    def _any(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        return [self._any(one) for one in value] if isinstance(value, list) else value

    def _mapping(self, body: Mapping[str, Any]) -> dict[str, Any]:
        rules: dict[str, Callable[[Any], Any]] = {
            "env": self._named_values,
            "httpHeaders": self._named_values,
            "annotations": self._annotations,
            **dict.fromkeys(_WORDS, self._words),
            **dict.fromkeys(_OF_DRIVERS, _values_left_out),
        }
        return {key: rules.get(key, self._any)(value) for key, value in body.items() if key != "managedFields"}

    def _named_values(self, entries: Any) -> Any:
        if not isinstance(entries, list):
            return self._any(entries)
        return [
            {key: LEFT_OUT if key == "value" else self._any(value) for key, value in entry.items()}
            if isinstance(entry, Mapping)
            else LEFT_OUT
            for entry in entries
        ]

    def _annotations(self, annotations: Any) -> Any:
        if not isinstance(annotations, Mapping):
            return self._any(annotations)
        return {
            key: self._any(value) if _KNOWN_ANNOTATIONS.fullmatch(key) else LEFT_OUT
            for key, value in annotations.items()
            if key != _COPY
        }

    def _words(self, words: Any) -> Any:
        """Keep a command, without what follows a flag that names a secret."""
        if not isinstance(words, list):
            return self._any(words)
        kept: list[Any] = []
        after_flag = False
        for word in words:
            secret = after_flag and not str(word).startswith("-")
            if kept and kept[-1] in _USER_FLAGS and isinstance(word, str) and ":" in word:
                kept.append(f"{word.partition(':')[0]}:{LEFT_OUT}")
                after_flag = False
                continue
            kept.append(LEFT_OUT if secret else self._any(word))
            after_flag = isinstance(word, str) and _FLAG.fullmatch(word) is not None
        return kept


def _values_left_out(value: Any) -> Any:
    return dict.fromkeys(value, LEFT_OUT) if isinstance(value, Mapping) else LEFT_OUT


def secrets_in(bodies: Iterable[Mapping[str, Any]]) -> set[str]:
    """Give the values in env whose names say that they are secret: a program may have written them to its log."""
    return {value for body in bodies for value in _secret_values(body) if len(value) >= 4}


def _secret_values(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "env" and isinstance(value, list):
                named = (one for one in value if isinstance(one, Mapping) and _NAMED.search(str(one.get("name", ""))))
                yield from (one["value"] for one in named if isinstance(one.get("value"), str))
            else:
                yield from _secret_values(value)
    elif isinstance(node, Sequence) and not isinstance(node, str):
        for one in node:
            yield from _secret_values(one)
