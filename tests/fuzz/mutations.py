"""Good files made bad: cut, flipped, spliced, with odd tokens, or with odd values in their JSON."""

import copy
import json

from hypothesis import strategies as st

DEEP = "[" * 100_000
ODD_TOKENS = (
    *(b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b'"', b"'", b",", b";", b"=cmd|'/c calc'!A0", b"<script>"),
    *(b"../../../../etc/passwd", b"/etc/passwd", b"a" * 5000, b"9" * 5000, b"-1", b"1e999", b"NaN", b"Infinity"),
    *(b"{}", b"[]", b"null", b"\\ud800", "\u202e\u2028".encode(), b"\x1b[2J", b"[/red]", b"\xff" * 8),
    *(b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0" * 64, b"(2147483647, 2147483647)", b"|O", b"<U1"),
    b"cos\nsystem\n(S'true'\ntR.",
)
ODD_VALUES = (
    *(None, True, -1, 0, 1, 2, 10**6, 2**31, 2**63, 10**30, 10**400, 0.5, -0.5, 1e308, 5e-324, float("nan")),
    *(float("inf"), "", "a", "none", "\ud800", "\0", "../..", "9" * 5000, "name", "/dev/zero", [], [[]], [1], [None]),
    *([[1, 2], [3]], ["a", "a"], [1, 2, 3], [3, 100000, 100000], [-3, 8, 8], [0], {}, {"name": 1}, {"name": "mlp"}),
    *({"": None}, {"\ud800": 1}),
)


@st.composite
def damaged(draw, seeds: list[bytes]) -> bytes:
    """Bytes that were a good file before something, or several things, happened to them."""
    content = draw(st.sampled_from(seeds))
    if content[:1] in b"{[" and draw(st.integers(0, 3)):
        return odd_json(draw, content)
    for _ in range(draw(st.integers(1, 3))):
        content = changed(draw, content, seeds)
    return content


def changed(draw, content: bytes, seeds: list[bytes]) -> bytes:
    at = draw(st.integers(0, len(content)))
    until = draw(st.integers(at, min(len(content), at + draw(st.sampled_from((1, 8, 600))))))
    kind = draw(st.sampled_from(("cut", "flip", "token", "replace", "double", "drop", "splice")))
    if kind == "cut":
        return content[:at]
    if kind == "flip":
        return content[:at] + bytes(b ^ (1 << draw(st.integers(0, 7))) for b in content[at:until]) + content[until:]
    if kind == "splice":
        other = draw(st.sampled_from(seeds))
        return content[:at] + other[draw(st.integers(0, len(other))) :]
    new = {
        "token": lambda: content[at:until] + draw(st.sampled_from(ODD_TOKENS)),
        "replace": lambda: draw(st.sampled_from(ODD_TOKENS) | st.binary(max_size=16)),
        "double": lambda: 2 * content[at:until],
        "drop": lambda: b"",
    }[kind]()
    return content[:at] + new + content[until:]


def odd_json(draw, content: bytes) -> bytes:
    """JSON with another value in one or more places, a key less, a key twice, or far too deep."""
    lines = content.decode(errors="surrogateescape").splitlines()
    whole = not all(line.startswith("{") and line.endswith("}") for line in lines)
    texts = ["\n".join(lines)] if whole else lines
    which = draw(st.integers(0, len(texts) - 1))
    value = json.loads(texts[which])
    for _ in range(draw(st.integers(1, 3))):
        places = list(places_in(value))
        holder, key = draw(st.sampled_from(places)) if places else (None, None)
        if holder is None or draw(st.integers(0, 40)) == 0:
            value = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
        elif draw(st.integers(0, 5)) == 0:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
    text = json.dumps(value)
    how = draw(st.integers(0, 30))
    if how == 0:
        text = text[: draw(st.integers(0, len(text)))] + DEEP
    elif how == 1:
        text = text.replace("{", '{"name": 1, "name": 2, ', 1)
    texts[which] = text
    return "\n".join(texts).encode(errors="surrogateescape")


def places_in(value):
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from places_in(inner)
