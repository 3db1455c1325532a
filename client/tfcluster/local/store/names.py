"""The names that the API server accepts, and those that it makes."""

import re
from typing import Final

from tfcluster.local.store.resources import Resource

Errors = list[tuple[str, str, str]]

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
#: The letters of generated names: without vowels, so that they do not form words.
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"

_SUBDOMAIN_WORDS: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_WORDS: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_WORDS: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def generate(base: str, count: int) -> str:
    """Generate a name from a generateName."""
    letters = ""
    for _ in range(5):
        count, rest = divmod(count, len(_LETTERS))
        letters = _LETTERS[rest] + letters
    return base[:58] + letters


def errors_of(resource: Resource, name: str) -> Errors:
    """Return the errors of an object's name."""
    if not name:
        return [("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")]
    if resource.plural in ("services", "namespaces") and not resource.group:
        pattern, most, words = _LABEL, 63, _LABEL_WORDS
    else:
        pattern, most, words = _SUBDOMAIN, 253, _SUBDOMAIN_WORDS
    found = [] if pattern.fullmatch(name) else [words]
    if len(name) > most:
        found.append(f"must be no more than {most} characters")
    return [("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {one}') for one in found]


def label_errors(labels: object) -> Errors:
    """Return the errors of an object's labels."""
    found: Errors = []
    for key, value in (labels if isinstance(labels, dict) else {}).items():
        if not _QUALIFIED.fullmatch(key):
            found.append(("metadata.labels", "FieldValueInvalid", f'Invalid value: "{key}": name part must be valid'))
        if len(value) > 63:
            words = f'Invalid value: "{value}": must be no more than 63 characters'
            found.append(("metadata.labels", "FieldValueInvalid", words))
        elif not _VALUE.fullmatch(value):
            found.append(("metadata.labels", "FieldValueInvalid", f'Invalid value: "{value}": {_VALUE_WORDS}'))
    return found
