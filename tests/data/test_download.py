import hashlib
import io
import re
import tarfile
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afda.data.download import Remote, compute_checksums, fetch, find_data_folder, unpack
from afda.errors import UserError

CONTENT = bytes(range(256)) * 40


class Publisher(BaseHTTPRequestHandler):
    """Serves CONTENT at /file, in parts if asked; /whole ignores ranges, /short hangs up early, the rest is missing."""

    def do_GET(self):
        ask = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(ask[1]) if ask and self.path != "/whole" else 0
        self.server.asked.append((self.path, start))
        if self.path not in ("/file", "/whole", "/short"):
            return self.send_error(404)
        if start >= len(CONTENT):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        return self.wfile.write(CONTENT[start : 1000 if self.path == "/short" else None])

    def log_message(self, *_):
        pass


@pytest.fixture
def publisher(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Publisher) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def remote(publisher, path="/file", md5=hashlib.md5(CONTENT).hexdigest(), name="a.bin"):
    return Remote(name, f"http://127.0.0.1:{publisher.server_port}{path}", md5)


def test_missing_file_is_downloaded_checked_and_recorded(publisher, tmp_path):
    got = fetch([remote(publisher)], tmp_path / "set")
    assert (tmp_path / "set" / "a.bin").read_bytes() == CONTENT
    assert got.paths == {"a.bin": tmp_path / "set" / "a.bin"}
    assert got.files == {"a.bin": hashlib.sha256(CONTENT).hexdigest()}
    assert got.notes == ()
    assert [p.name for p in (tmp_path / "set").iterdir()] == ["a.bin"]


def test_download_goes_on_from_the_part(publisher, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:3000])
    fetch([remote(publisher)], tmp_path)
    assert publisher.asked == [("/file", 3000)]
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_download_starts_over_when_the_server_has_no_ranges(publisher, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(b"x" * 3000)
    fetch([remote(publisher, "/whole")], tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_finished_part_needs_no_more_bytes(publisher, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    fetch([remote(publisher)], tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("part", [None, b"x" * 3000, b"x" * len(CONTENT)])
def test_download_with_wrong_checksum_is_deleted(publisher, tmp_path, part):
    if part:
        (tmp_path / "a.bin.part").write_bytes(part)
    with pytest.raises(UserError, match="checksum"):
        fetch([remote(publisher, md5=hashlib.md5(b"other").hexdigest())], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_broken_connection_keeps_the_part(publisher, tmp_path):
    with pytest.raises(UserError, match="ended early"):
        fetch([remote(publisher, "/short")], tmp_path)
    assert (tmp_path / "a.bin.part").read_bytes() == CONTENT[:1000]
    fetch([remote(publisher)], tmp_path)
    assert publisher.asked[-1] == ("/file", 1000)


def test_file_in_place_is_used_without_asking_even_if_it_differs(publisher, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"mine")
    got = fetch([remote(publisher)], tmp_path)
    assert publisher.asked == []
    assert got.files == {"a.bin": hashlib.sha256(b"mine").hexdigest()}
    (note,) = got.notes
    assert note.startswith("a.bin is not the published file")


def test_file_is_found_elsewhere(publisher, tmp_path):
    (tmp_path / "a.bin").write_bytes(CONTENT)
    assert fetch([remote(publisher)], tmp_path / "set", tmp_path).paths == {"a.bin": tmp_path / "a.bin"}
    assert publisher.asked == []


def test_offline_sentence_names_what_is_missing_and_where_to_put_it(tmp_path, unused_port):
    (tmp_path / "b").write_bytes(b"here")
    files = [Remote(name, f"http://127.0.0.1:{unused_port}/", "") for name in "abc"]
    with pytest.raises(UserError) as raised:
        fetch(files, tmp_path)
    assert str(raised.value) == (
        f"Put a and c into {tmp_path}, or set AFDA_DATA to the folder that has them; "
        "they could not be downloaded (Connection refused)."
    )
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


@pytest.fixture
def unused_port(publisher):
    with ThreadingHTTPServer(("127.0.0.1", 0), Publisher) as server:
        return server.server_port


def test_refusing_server_is_like_being_offline(publisher, tmp_path):
    with pytest.raises(UserError, match=r"^Put a\.bin into .* that has it; it could not be downloaded \(.*404.*\)\.$"):
        fetch([remote(publisher, "/gone")], tmp_path)


def test_unwritable_folder(publisher, tmp_path):
    (tmp_path / "set").write_text("not a folder")
    with pytest.raises(UserError, match=r"cannot be written to .* set AFDA_DATA"):
        fetch([remote(publisher)], tmp_path / "set")


def test_folder_in_place_of_a_file(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        compute_checksums(tmp_path)


def test_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AFDA_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert find_data_folder() == tmp_path / ".cache" / "afda"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert find_data_folder() == tmp_path / "cache" / "afda"
    monkeypatch.setenv("AFDA_DATA", "~/data")
    assert find_data_folder() == tmp_path / "data"


def tarred(path, *members, mode="w:gz"):
    with tarfile.open(path, mode) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            else:
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
    return path


@pytest.mark.parametrize("member", ["a", "deep/er/a", "../a", "../../../a", "/a", "/tmp/../a"])
def test_unpack_ignores_the_archives_paths(tmp_path, member):
    archive = tarred(tmp_path / "x.tar.gz", (member, b"A"), ("../evil", b"E"), ("/evil", b"E"))
    unpack(archive, tmp_path / "one" / "two", ["a"])
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {"x.tar.gz", "one/two/a"}
    assert (tmp_path / "one" / "two" / "a").read_bytes() == b"A"


def test_unpack_follows_no_link(tmp_path):
    (tmp_path / "secret").write_bytes(b"S")
    archive = tarred(tmp_path / "x.tar.gz", ("a", "../secret"))
    with pytest.raises(UserError, match="lacks a"):
        unpack(archive, tmp_path / "out", ["a"])
    assert list((tmp_path / "out").iterdir()) == []


def test_unpack_refuses_a_large_member(tmp_path):
    archive = tarred(tmp_path / "x.tar.gz", ("a", b"A" * 11))
    with pytest.raises(UserError, match="larger than 10 bytes"):
        unpack(archive, tmp_path / "out", ["a"], limit=10)
    assert list((tmp_path / "out").iterdir()) == []


@given(
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=8),
    st.integers(0, 1 << 16),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_unpacking_a_damaged_archive_raises_nothing_but_user_errors(tmp_path_factory, edits, end, zipped):
    folder = tmp_path_factory.mktemp("tar")
    archive = tarred(folder / "x", ("a", b"A" * 99), ("b", b"B" * 999), mode="w:gz" if zipped else "w")
    damaged = bytearray(archive.read_bytes())
    for where, byte in edits:
        damaged[where % len(damaged)] = byte
    archive.write_bytes(damaged[: end % len(damaged)])
    with suppress(UserError):
        unpack(archive, folder / "out", ["a", "b"])
        assert {p.name for p in (folder / "out").iterdir()} == {"a", "b"}
