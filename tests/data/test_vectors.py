"""Word vectors from files."""

import io
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbormax import _archives
from arbormax.data.vectors import WordVectors
from arbormax.errors import InputError

LINES = ["the 0.1 0.2 0.3", "owl -1 2e-2 3", "mouse 4 5 6"]


def write(path: Path, lines: list[str], end: str = "\n") -> Path:
    path.write_bytes("".join(line + end for line in lines).encode("utf-8"))
    return path


def save_npz(path: Path, words: list[str], matrix: np.ndarray) -> Path:
    np.savez_compressed(path, words=np.array("\n".join(words).encode("utf-8")), vectors=matrix)
    return path


def test_a_text_file_has_its_words_in_order_and_its_numbers_as_float32(tmp_path: Path):
    vectors = WordVectors.load(write(tmp_path / "glove.6B.3d.txt", LINES))
    assert vectors.words == ("the", "owl", "mouse")
    assert vectors.number == {"the": 0, "owl": 1, "mouse": 2}
    assert vectors.matrix.dtype == np.float32
    assert vectors.matrix.flags.c_contiguous
    np.testing.assert_array_equal(vectors.matrix, np.float32([[0.1, 0.2, 0.3], [-1, 0.02, 3], [4, 5, 6]]))


def test_the_dimension_is_ignored_for_a_single_file(tmp_path: Path):
    assert WordVectors.load(write(tmp_path / "v.txt", LINES), dim=100).matrix.shape == (3, 3)
    assert WordVectors.load(save_npz(tmp_path / "v.npz", ["a"], np.ones((1, 2))), dim=100).matrix.shape == (1, 2)


@pytest.mark.parametrize(
    "word", ["\x85", "a\u00a0b", "\u2028", "naïve", '"', "'", "#", "NaN", "null", "", "\ufeff", "\x0c"]
)
def test_unusual_words_are_preserved(tmp_path: Path, word: str):
    vectors = WordVectors.load(write(tmp_path / "v.txt", [*LINES, f"{word} 7 8 9"]))
    assert vectors.words == ("the", "owl", "mouse", word)
    assert vectors.matrix[3].tolist() == [7, 8, 9]


def test_words_may_contain_blanks(tmp_path: Path):
    vectors = WordVectors.load(write(tmp_path / "v.txt", [". . . 7 8 9", *LINES, "at name@domain.com 1 1 1"]))
    assert vectors.words == (". . .", "the", "owl", "mouse", "at name@domain.com")
    assert vectors.matrix[[0, 4]].tolist() == [[7, 8, 9], [1, 1, 1]]


def test_windows_line_ends_a_byte_order_mark_and_a_missing_last_line_end_are_accepted(tmp_path: Path):
    write(tmp_path / "v.txt", ["\ufeff" + LINES[0], *LINES[1:]], end="\r\n")
    assert WordVectors.load(tmp_path / "v.txt").words == ("the", "owl", "mouse")
    (tmp_path / "w.txt").write_text("\n".join(LINES))
    assert WordVectors.load(tmp_path / "w.txt").matrix[2].tolist() == [4, 5, 6]


@pytest.mark.parametrize("blank", ["", " "])
def test_a_header_of_count_and_size_is_skipped(tmp_path: Path, blank: str):
    vectors = WordVectors.load(write(tmp_path / "v.vec", ["3 3", *(line + blank for line in LINES)]))
    assert vectors.words == ("the", "owl", "mouse")
    assert vectors.matrix[2].tolist() == [4, 5, 6]


def test_the_first_vector_of_a_repeated_word_is_used(tmp_path: Path):
    vectors = WordVectors.load(write(tmp_path / "v.txt", ["a 1 2", "b 3 4", "a 5 6", "c 7 8"]))
    assert vectors.words == ("a", "b", "c")
    assert vectors.matrix.tolist() == [[1, 2], [3, 4], [7, 8]]


def test_a_long_file_is_read(tmp_path: Path):
    numbers = np.random.default_rng(0).standard_normal((3000, 7)).round(5)
    lines = [f"w{i} {' '.join(map(str, row))}" for i, row in enumerate(numbers)]
    lines[250] = "two words" + lines[250][4:]
    path = write(tmp_path / "v.txt", lines)
    vectors = WordVectors.load(path)
    assert vectors.words == (*(f"w{i}" for i in range(250)), "two words", *(f"w{i}" for i in range(251, 3000)))
    np.testing.assert_array_equal(vectors.matrix, numbers.astype(np.float32))


@pytest.mark.parametrize("line", ["bat 1 2", "bat 1 2 3 4", "bat 1 2 x", "bat 1  3"])
def test_the_error_about_a_wrong_line_names_file_and_line(tmp_path: Path, line: str):
    path = write(tmp_path / "v.txt", [*LINES, line, "last 1 2 3"])
    with pytest.raises(InputError, match=f"line 4: expected a word in UTF-8 and 3 numbers, found '{line}'") as caught:
        WordVectors.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("number", ["nan", "1e99", "-inf"])
def test_a_number_that_is_not_finite_is_an_error(tmp_path: Path, number: str):
    path = write(tmp_path / "v.txt", [*LINES, f"bat 1 {number} 3"])
    with pytest.raises(InputError, match="the vector of 'bat' contains a number that is not finite"):
        WordVectors.load(path)


def test_the_line_number_counts_the_header_and_empty_lines(tmp_path: Path):
    path = write(tmp_path / "v.txt", ["9 3", "", *LINES, "", "bat 1 x 3"])
    with pytest.raises(InputError, match="line 7"):
        WordVectors.load(path)


def test_another_encoding_is_an_error(tmp_path: Path):
    path = tmp_path / "v.txt"
    path.write_bytes(b"the 1 2\ncaf\xe9 1 2\n")
    with pytest.raises(InputError, match=r"line 2: expected a word in UTF-8 .*caf"):
        WordVectors.load(path)


@pytest.mark.parametrize("content", ["", "\n\n", "word\n"])
def test_a_file_without_vectors_is_an_error(tmp_path: Path, content: str):
    path = tmp_path / "v.txt"
    path.write_text(content)
    with pytest.raises(InputError, match="expected"):
        WordVectors.load(path)


def test_a_file_with_fewer_words_than_announced_is_cut_short(tmp_path: Path):
    with pytest.raises(InputError, match="announces 9 words, found 3"):
        WordVectors.load(write(tmp_path / "v.txt", ["9 3", *LINES]))


def glove_zip(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for dim in (5, 50):
            archive.writestr(f"glove.6B.{dim}d.txt", f"the{' 0.5' * dim}\nowl{' 1' * dim}\n")
    return path


def test_the_dimension_selects_a_file_in_a_zip(tmp_path: Path):
    path = glove_zip(tmp_path / "glove.6B.zip")
    assert WordVectors.load(path, 5).matrix.shape == (2, 5)
    vectors = WordVectors.load(path, 50)
    assert (vectors.matrix.shape, vectors.name) == ((2, 50), "GloVe 50d")


@pytest.mark.parametrize("dim", [300, 0, None])
def test_the_error_about_a_missing_dimension_lists_the_files(tmp_path: Path, dim: int | None):
    with pytest.raises(InputError, match=r"contains glove\.6B\.5d\.txt, glove\.6B\.50d\.txt"):
        WordVectors.load(glove_zip(tmp_path / "glove.6B.zip"), dim)


def test_the_dimension_selects_a_file_of_a_folder(tmp_path: Path):
    save_npz(tmp_path / "glove.6B.2d.subset.npz", ["a", "b"], np.ones((2, 2), dtype=np.float16))
    write(tmp_path / "glove.6B.3d.txt", LINES)
    (tmp_path / "README.md").write_text("3d")
    assert WordVectors.load(tmp_path, 2).words == ("a", "b")
    assert WordVectors.load(tmp_path, 3).words == ("the", "owl", "mouse")
    with pytest.raises(InputError, match=r"glove\.6B\.2d\.subset\.npz, glove\.6B\.3d\.txt"):
        WordVectors.load(tmp_path, 4)


def test_a_folder_with_a_zip_file_is_searched_in_it(tmp_path: Path):
    glove_zip(tmp_path / "glove.6B.zip")
    assert WordVectors.load(tmp_path, 5).matrix.shape == (2, 5)


def test_a_zip_that_is_cut_short_is_an_error(tmp_path: Path):
    path = glove_zip(tmp_path / "glove.6B.zip")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"cut short or is not a \.zip"):
        WordVectors.load(path, 5)


def test_a_damaged_zip_is_an_error(tmp_path: Path):
    path = glove_zip(tmp_path / "glove.6B.zip")
    content = bytearray(path.read_bytes())
    content[60] ^= 255
    path.write_bytes(content)
    with pytest.raises(InputError):
        WordVectors.load(path, 5)


def test_half_precision_is_converted_to_float32(tmp_path: Path):
    matrix = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float16)
    vectors = WordVectors.load(save_npz(tmp_path / "v.npz", ["\x85", "b"], matrix))
    assert vectors.words == ("\x85", "b")
    assert vectors.matrix.dtype == np.float32
    np.testing.assert_array_equal(vectors.matrix, matrix.astype(np.float32))


def test_an_archive_without_vectors_is_an_error(tmp_path: Path):
    path = tmp_path / "v.npz"
    np.savez(path, wrds=np.array(b"a"), vectors=np.ones((1, 2)))
    with pytest.raises(InputError, match=r"expected a numpy archive with `words`.*words is not a file"):
        WordVectors.load(path)
    np.savez(path, words=np.array(b"a\nb"), vectors=np.ones((1, 2)))
    with pytest.raises(InputError, match=r"found 2 words, vectors \(1, 2\)"):
        WordVectors.load(path)
    np.savez(path, words=np.array(["a"], dtype=object), vectors=np.ones((1, 2)))
    with pytest.raises(InputError, match="allow_pickle"):
        WordVectors.load(path)
    np.savez(path, words=np.array(b"a\nb"), vectors=np.array([[1, 2], [np.nan, 1]]))
    with pytest.raises(InputError, match="the vector of 'b' contains"):
        WordVectors.load(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="cut short"):
        WordVectors.load(path)


def test_a_missing_file_is_an_error(tmp_path: Path):
    for name in ("v.txt", "v.zip", "v.npz"):
        with pytest.raises(FileNotFoundError, match="v"):
            WordVectors.load(tmp_path / name)


def test_coverage_counts_distinct_and_running_words(tmp_path: Path):
    vectors = WordVectors.load(write(tmp_path / "glove.6B.3d.txt", LINES))
    coverage = vectors.coverage({"the": 1500, "owl": 400, "bat": 100})
    assert coverage == "GloVe 3d: 66.7 % of 3 distinct words, 95.0 % of 2,000 running words"
    assert "0 distinct words" in vectors.coverage({})


def test_an_archive_that_would_unpack_to_an_unreasonable_size_is_refused(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(_archives, "_ALWAYS_ALLOWED", 1000)
    with zipfile.ZipFile(tmp_path / "v.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("v.txt", "a" + " 0" * 1_000_000)
    with pytest.raises(InputError, match="would unpack"):
        WordVectors.load(tmp_path / "v.zip")
    np.savez_compressed(tmp_path / "v.npz", words=np.array(b"a"), vectors=np.zeros((1, 1_000_000)))
    with pytest.raises(InputError, match="would unpack"):
        WordVectors.load(tmp_path / "v.npz")


@pytest.mark.parametrize("name", ["x.vec", "x.txt"])
def test_vectors_of_a_million_numbers_are_refused(tmp_path, name):
    row = " ".join(["0.5"] * 999_999)
    lines = [f"a {row}", f"b {row}"]
    path = write(tmp_path / name, ["2 999999", *lines] if name == "x.vec" else lines)
    with pytest.raises(InputError, match=r"999,999 numbers; expected .* at most 16,384|more than 1,048,576 bytes"):
        WordVectors.load(path)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("suffix", [".zip", ".npz"])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_archive_is_an_input_error(tmp_path_factory, suffix, method, data):
    folder = tmp_path_factory.mktemp("damaged")
    path = folder / f"x{suffix}"
    with zipfile.ZipFile(path, "w", method) as archive:
        if suffix == ".zip":
            archive.writestr("glove.3d.txt", "\n".join(LINES * 3))
        else:
            with np.load(save_npz(folder / "whole.npz", ["a", "b"], np.ones((2, 3), "f"))) as arrays:
                for name in arrays.files:
                    content = io.BytesIO()
                    np.save(content, arrays[name])
                    archive.writestr(f"{name}.npy", content.getvalue())
    content = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))] if data.draw(st.booleans()) else content)
    with suppress(InputError):
        WordVectors.load(path)
