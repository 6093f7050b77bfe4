# SPDX-License-Identifier: Apache-2.0
"""Signed objects (docs/format.md, "Signatures"): signing, and what a reader with keys refuses."""

import base64
import re

from . import ed25519

CONTEXT = b"segue-signature-1\n"
TAIL = re.compile(rb',\n  "signature": "([0-9a-f]{128})"\n\}\n\Z')
SPKI = bytes.fromhex("302a300506032b6570032100")


class NotSigned(Exception):
    pass


def message(name, signed_part):
    return CONTEXT + name.encode() + b"\n" + signed_part


def sign_object(secret, name, text):
    body = text.rstrip(b" \t\r\n")
    assert body.endswith(b"}")
    body = body[:-1].rstrip(b" \t\r\n")
    signature = ed25519.sign(secret, message(name, body))
    return body + b',\n  "signature": "' + signature.hex().encode() + b'"\n}\n'


def verify_object(keys, name, text):
    """Raises NotSigned unless one of the keys (32 bytes each) has signed `text` as `name`."""
    match = TAIL.search(text)
    if not match:
        raise NotSigned(f"{name} is not signed")
    signature = bytes.fromhex(match.group(1).decode())
    signed = message(name, text[:match.start()])
    if not any(ed25519.verify(key, signed, signature) for key in keys):
        raise NotSigned(f"{name} is signed by none of the keys")


def public_pem(key):
    text = base64.b64encode(SPKI + key).decode()
    return f"-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n".encode()


def read_public_pem(text):
    der = base64.b64decode(b"".join(text.splitlines()[1:-1]))
    assert der.startswith(SPKI) and len(der) == len(SPKI) + 32
    return der[len(SPKI):]
