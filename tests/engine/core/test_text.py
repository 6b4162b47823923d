"""Text as it becomes certain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentmem.engine.text import TextStream

BYTES = [bytes([b]) for b in range(256)] + [b"<|im_end|>", b"\xff", b""]
CONTROL = {256}


def _stream(data: bytes, *stop: str) -> tuple[list[str], TextStream]:
    stream = TextStream(BYTES, CONTROL, stop)
    return [stream.push(b) for b in data], stream


def test_a_character_comes_whole() -> None:
    pieces, stream = _stream("aé日🎉".encode())
    assert pieces == ["a", "", "é", "", "", "日", "", "", "", "🎉"]
    assert stream.finish() == ""


def test_a_torn_character_is_marked_at_the_end() -> None:
    pieces, stream = _stream("日".encode()[:2])
    assert pieces == ["", ""]
    assert stream.finish() == "\ufffd"


def test_control_tokens_and_unknown_ids_give_no_text() -> None:
    stream = TextStream(BYTES, CONTROL)
    assert [stream.push(i) for i in (256, 97, 9999)] == ["", "a", ""]


def test_what_could_become_a_stop_is_held_back() -> None:
    pieces, stream = _stream(b"ab##c", "###")
    assert pieces == ["a", "b", "", "", "##c"]
    assert not stream.stopped
    pieces, stream = _stream(b"ab###c", "###")
    assert pieces == ["a", "b", "", "", "", ""]
    assert stream.stopped
    assert stream.finish() == ""


def test_held_back_text_comes_at_the_end_after_all() -> None:
    pieces, stream = _stream(b"ab##", "###")
    assert "".join(pieces) == "ab"
    assert stream.finish() == "##"


def test_the_earliest_of_several_stops_wins() -> None:
    stream = TextStream([b"xENDyHALT"], set(), ["HALT", "END", ""])
    assert stream.push(0) == "x"
    assert stream.stopped


@given(
    st.text(alphabet="ab#é"),
    st.lists(st.text(alphabet="ab#é", min_size=1, max_size=3), max_size=3),
    st.lists(st.integers(1, 4), max_size=20),
)
def test_any_cutting_into_tokens_gives_the_text_up_to_the_first_stop(
    text: str, stops: list[str], sizes: list[int]
) -> None:
    data, tokens = text.encode(), []
    for size in [*sizes, *[1] * len(data)]:
        if data:
            tokens.append(data[:size])
            data = data[size:]
    stream = TextStream(tokens, set(), stops)
    shown = []
    for token in range(len(tokens)):
        shown.append(stream.push(token))
        if stream.stopped:
            break
    result = "".join(shown) + stream.finish()
    # the stop that is complete first, wherever the tokens were cut
    ends = [(text.find(s) + len(s), text.find(s)) for s in stops if s in text]
    if not ends:
        assert result == text
    else:
        assert stream.stopped
        assert all(s not in result for s in stops)
        assert text.startswith(result)
        assert result in {text[:start] for _, start in ends}
