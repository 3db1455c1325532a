"""Build the resolver's descriptor set from its .proto files: ``python -m scripts.protos``.

The set is checked in, so that the package does not need a compiler or generated code, which does not run with another
major version of protobuf than that of its compiler.
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

from grpc_tools import protoc

PROTOS: Final = Path(__file__).resolve().parent.parent / "resolver" / "tfcluster_resolver" / "protos"
DESCRIPTOR_SET: Final = PROTOS / "messages.binpb"


def compile_protos() -> bytes:
    """Compile every .proto file.

    Returns:
        A serialized FileDescriptorSet, each file after those that it imports.

    Raises:
        RuntimeError: they do not compile; the compiler has printed why.
    """
    with tempfile.NamedTemporaryFile() as made:
        words = ["protoc", f"--proto_path={PROTOS}", f"--descriptor_set_out={made.name}"]
        if protoc.main([*words, *sorted(path.name for path in PROTOS.glob("*.proto"))]) != 0:
            raise RuntimeError(f"the .proto files in {PROTOS} do not compile")
        return Path(made.name).read_bytes()


if __name__ == "__main__":
    DESCRIPTOR_SET.write_bytes(compile_protos())
    print(f"wrote {DESCRIPTOR_SET}", file=sys.stderr)
