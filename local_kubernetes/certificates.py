"""The cluster's certificate authority and the certificates it signs, with openssl.

Kubernetes reads a client's user from the certificate's CN and its groups from each O:
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates
"""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

VALID_DAYS = 30
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")  # RSA keys take 50 times as long
# openssl's installed configuration would make every certificate an authority.
_CONFIGURATION = "[req]\ndistinguished_name = subject\nstring_mask = utf8only\n[subject]\n"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """The files of one certificate authority.

    Args:
        folder: Where its files are, or will be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.crt"
        self.key = folder / "ca.key"
        self.service_account_key = folder / "service-account.key"

    def create(self) -> None:
        """Make the authority's own certificate, and the key that signs service account tokens."""
        self.folder.mkdir(mode=0o700)
        (self.folder / "openssl.conf").write_text(_CONFIGURATION)
        extensions = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
        self._request("ca", "/CN=tfcluster-local-kubernetes", extensions)
        self._openssl(
            "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", self.service_account_key
        )
        self._openssl("pkey", "-in", self.service_account_key, "-pubout", "-out", self.folder / "service-account.pub")

    def issue(
        self, name: str, user: str, *, groups: Sequence[str] = (), alternative_names: Sequence[str] = ()
    ) -> Certificate:
        """Sign a certificate for a client or a server.

        Returns:
            The files.
        """
        extensions = ["basicConstraints=critical,CA:FALSE", "extendedKeyUsage=clientAuth"]
        if alternative_names:
            extensions[1] += ",serverAuth"
            extensions.append(f"subjectAltName={','.join(alternative_names)}")
        self._request(name, subject(user, groups), extensions, "-CA", self.certificate, "-CAkey", self.key)
        return Certificate(self.folder / f"{name}.crt", self.folder / f"{name}.key")

    def expires_within(self, seconds: int) -> bool:
        """Return whether the authority's certificate ends soon; all others were signed with it and end with it."""
        command: list[str | Path] = ["openssl", "x509", "-in", self.certificate, "-noout", "-checkend", str(seconds)]
        return subprocess.run(command, capture_output=True, check=False).returncode != 0

    def _request(self, name: str, subject_: str, extensions: Sequence[str], *arguments: str | Path) -> None:
        files = ("-keyout", self.folder / f"{name}.key", "-out", self.folder / f"{name}.crt")
        added = [argument for extension in extensions for argument in ("-addext", extension)]
        what = ("-x509", *_KEY, "-days", str(VALID_DAYS), "-subj", subject_)
        self._openssl("req", "-config", self.folder / "openssl.conf", *what, *files, *added, *arguments)

    def _openssl(self, *arguments: str | Path) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def subject(user: str, groups: Sequence[str]) -> str:
    """Write a subject as `openssl req -subj` reads it."""
    parts = [*(("O", group) for group in groups), ("CN", user)]
    # `/` would begin the next part, `+` a second value of this one.
    return "".join(f"/{kind}=" + re.sub(r"([\\/+])", r"\\\1", value) for kind, value in parts)
