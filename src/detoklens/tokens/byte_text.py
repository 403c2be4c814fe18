"""Which bytes does a byte-level token stand for?

Byte-level vocabularies write each byte as one printable character: printable Latin-1 bytes as themselves, the others
as the characters from U+0100 on, in order (a space is Ġ).
"""

PRINTABLE_BYTES = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
OTHER_BYTES = tuple(byte for byte in range(256) if byte not in PRINTABLE_BYTES)

BYTE_OF_CHARACTER = {chr(byte): byte for byte in PRINTABLE_BYTES} | {
    chr(0x100 + rank): byte for rank, byte in enumerate(OTHER_BYTES)
}


def token_bytes(raw: str) -> bytes:
    """The bytes behind a byte-level token; a token with other characters (an added one) is taken as plain text."""
    try:
        return bytes(BYTE_OF_CHARACTER[character] for character in raw)
    except KeyError:
        return raw.encode("utf-8", "surrogatepass")


def readable(raw_bytes: bytes) -> str:
    r"""Bytes as text; those that are no UTF-8 (half a character) as \xNN."""
    return raw_bytes.decode("utf-8", "backslashreplace")
