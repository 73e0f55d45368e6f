"""Compiled templates in the persistent cache: compiling the page's template takes longer than rendering it."""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import sys

import jinja2
from jinja2.bccache import Bucket

from aoti_debug.base.machine import cache

KIND = "templates"
_FILE = "template.bin"
_DIGEST_BYTES = hashlib.sha256().digest_size


class TemplateCache(jinja2.BytecodeCache):
    """Compiled templates, each under the hash of its source, of jinja2's version and of Python's.

    A file that is damaged, or belongs to another user, is not used; where the cache cannot be written, nothing is kept.
    """

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fills the bucket, if the template is in the cache."""
        with contextlib.suppress(OSError):
            path = cache.directory() / KIND / _key(bucket) / _FILE
            if path.stat().st_uid == os.getuid():
                data = path.read_bytes()
                digest, code = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
                if digest == hashlib.sha256(code).digest():
                    bucket.code = marshal.loads(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keeps a template that was compiled now."""
        code = marshal.dumps(bucket.code)
        with contextlib.suppress(OSError):
            cache.entry(
                KIND,
                _key(bucket),
                lambda folder: (folder / _FILE).write_bytes(hashlib.sha256(code).digest() + code),
            )


def _key(bucket: Bucket) -> str:
    return cache.key(bucket.key, bucket.checksum, jinja2.__version__, sys.version)
