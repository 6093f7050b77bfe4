# SPDX-License-Identifier: Apache-2.0
"""Ed25519 (RFC 8032, section 5.1) in plain Python: for golden files and for reading signed objects.

Slow and not hardened against observers; never for keys that matter.
"""

import hashlib

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
SQRT_MINUS_ONE = pow(2, (P - 1) // 4, P)
IDENTITY = (0, 1, 1, 0)


def recover_x(y, sign):
    """The x of a point of this y, or None where there is none."""
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * SQRT_MINUS_ONE % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    return P - x if x & 1 != sign else x


# Points are (X, Y, Z, T) with x = X / Z, y = Y / Z, x * y = T / Z.
BASE_Y = 4 * pow(5, P - 2, P) % P
BASE_X = recover_x(BASE_Y, 0)
BASE = (BASE_X, BASE_Y, 1, BASE_X * BASE_Y % P)


def add(a, b):
    e = (a[1] - a[0]) * (b[1] - b[0]) % P
    f = (a[1] + a[0]) * (b[1] + b[0]) % P
    g = 2 * a[3] * b[3] * D % P
    h = 2 * a[2] * b[2] % P
    x, y, z, t = f - e, h + g, h - g, f + e
    return x * z % P, y * t % P, y * z % P, x * t % P


def times(number, point):
    result = IDENTITY
    while number:
        if number & 1:
            result = add(result, point)
        point = add(point, point)
        number >>= 1
    return result


def same(a, b):
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


def encode(point):
    inverse = pow(point[2], P - 2, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def decode(text):
    number = int.from_bytes(text, "little")
    y, sign = number & (1 << 255) - 1, number >> 255
    x = recover_x(y, sign)
    return None if x is None else (x, y, 1, x * y % P)


def hash_number(*parts):
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % L


def expand(secret):
    digest = hashlib.sha512(secret).digest()
    scalar = int.from_bytes(digest[:32], "little")
    return scalar & (1 << 254) - 8 | 1 << 254, digest[32:]


def public_key(secret):
    return encode(times(expand(secret)[0], BASE))


def sign(secret, message):
    scalar, prefix = expand(secret)
    key = encode(times(scalar, BASE))
    nonce = hash_number(prefix, message)
    first = encode(times(nonce, BASE))
    second = (nonce + hash_number(first, key, message) * scalar) % L
    return first + second.to_bytes(32, "little")


def verify(key, message, signature):
    point, first = decode(key), decode(signature[:32])
    second = int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or point is None or first is None or second >= L:
        return False
    challenge = hash_number(signature[:32], key, message)
    return same(times(second, BASE), add(first, times(challenge, point)))
