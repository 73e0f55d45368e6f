"""The identity of a minimisation: an interrupted one of the same goes on."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from aoti_debug.base.machine import user_modules
from aoti_debug.base.machine.versions import installed_versions
from aoti_debug.triage.minify.options import MinifyOptions


def key_of(options: MinifyOptions) -> str:
    """The identity of a minimisation, in hexadecimal digits.

    It is that of the program, its settings and inputs, of the user's modules and libraries, and of what is installed.
    """
    digest = sha256(options.program.read_bytes())
    if options.inputs is not None:
        digest.update(options.inputs.read_bytes())
    for path in (*user_modules.files_of(options.imports), *filter(Path.is_file, options.libraries)):
        digest.update(sha256(path.read_bytes()).digest())
    digest.update(json.dumps(installed_versions("torch", "aoti-debug"), sort_keys=True).encode())
    words = (options.inductor_configs, options.calls, options.guards, options.imports, options.libraries)
    digest.update(json.dumps(words, sort_keys=True, default=str).encode())
    return digest.hexdigest()
