# SPDX-License-Identifier: Apache-2.0
"""The golden files of signed objects, tests/golden/signed/.

LABEL.json is the object as it is stored, `cases.json` says under which name it is read and whether
a reader with the public keys `key.pem` and `second.pem` takes it.
"""

import json

from segue_reference import ed25519, signed_object

# Secrets of golden files, known to everybody.
KEY, SECOND, STRANGER = (bytes([number]) * 32 for number in (1, 2, 3))
MANIFEST = "run/versions/0000000007.json"
LINEAGE = "run/lineage.json"


def cases(text):
    """(label, stored name, bytes, whether it is taken, why); `text`: a manifest."""
    good = signed_object.sign_object(KEY, MANIFEST, text)
    flipped = bytearray(good)
    flipped[40] ^= 1
    swapped = good.replace(b'"signature"', b'"sIgnature"')
    last = good.rindex(b'"')
    yield "valid", MANIFEST, good, True, "signed by the first key"
    yield ("second-key", MANIFEST, signed_object.sign_object(SECOND, MANIFEST, text), True,
           "signed by the second key")
    yield ("compact", LINEAGE, signed_object.sign_object(KEY, LINEAGE, b'{"a":1}'), True,
           "the signed part may be written in any way")
    yield "unsigned", MANIFEST, text, False, "no signature"
    yield "flipped-bit", MANIFEST, bytes(flipped), False, "one bit of the signed part"
    yield ("wrong-key", MANIFEST, signed_object.sign_object(STRANGER, MANIFEST, text), False,
           "signed by a key that is not given")
    yield ("other-version", "run/versions/0000000008.json", good, False,
           "the signature of another version")
    yield "other-lineage", "fork/versions/0000000007.json", good, False, "of another lineage"
    yield "other-kind", LINEAGE, good, False, "of another kind of object"
    yield "truncated", MANIFEST, good[:-5], False, "the end is missing"
    yield ("upper-case", MANIFEST, good[:last - 128] + good[last - 128:last].upper() + good[last:],
           False, "digits are lower-case")
    yield "key-of-member", MANIFEST, swapped, False, "the last member has another name"
    yield "space-after", MANIFEST, good + b"\n", False, "bytes after the signature"
    order = int.from_bytes(bytes.fromhex(good[last - 64:last].decode()), "little") + ed25519.L
    malleable = good[:last - 64] + order.to_bytes(32, "little").hex().encode() + good[last:]
    yield "malleable", MANIFEST, malleable, False, "S is not below the order of the group"


def signed_files(manifest):
    """Name below tests/golden/signed to bytes."""
    files, table = {}, []
    for label, name, text, taken, why in cases(manifest):
        files[f"{label}.json"] = text
        table.append({"label": label, "name": name, "taken": taken, "why": why})
    files["cases.json"] = json.dumps(table, indent=2).encode() + b"\n"
    for label, secret in (("key", KEY), ("second", SECOND)):
        files[f"{label}.pem"] = signed_object.public_pem(ed25519.public_key(secret))
    return files
