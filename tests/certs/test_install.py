"""Installing a pair: a new inode, strict modes, and the old pair intact when anything is wrong."""

from __future__ import annotations

import hashlib
import ssl
import stat

import pytest

from certs.authority import Authority
from certs.install import canonical_serial, fingerprint_of, install_pair, serial_of, write_atomically


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "certs")


@pytest.fixture
def place(tmp_path):
    return {"certificate": tmp_path / "site.pem", "key": tmp_path / "site.key"}


def test_a_pair_is_put_in_place_with_strict_modes(authority, place):
    """Both files hold what was given; the key is for its owner alone."""
    pair = authority.leaf("soak.test")
    install_pair(pair.chain_pem, pair.key_pem, **place)

    assert pair.chain_pem == place["certificate"].read_bytes()
    assert pair.key_pem == place["key"].read_bytes()
    assert 0o600 == stat.S_IMODE(place["key"].stat().st_mode)
    assert 0o644 == stat.S_IMODE(place["certificate"].stat().st_mode)


def test_the_same_pair_again_is_a_new_file(authority, place):
    """nginx reuses an object whose mtime and inode are unchanged, so an install changes both, even for equal bytes."""
    pair = authority.leaf("soak.test")
    install_pair(pair.chain_pem, pair.key_pem, **place)
    before = {name: path.stat() for name, path in place.items()}
    install_pair(pair.chain_pem, pair.key_pem, **place)

    for name, path in place.items():
        assert before[name].st_ino != path.stat().st_ino
        assert before[name].st_mtime_ns < path.stat().st_mtime_ns


def test_a_key_of_another_leaf_is_refused_and_nothing_changes(authority, place):
    """A mismatched pair never reaches the disk."""
    good = authority.leaf("soak.test")
    install_pair(good.chain_pem, good.key_pem, **place)
    other = authority.leaf("soak.test")

    with pytest.raises(
        ValueError, match="does not belong to the certificate with serial " + serial_of(other.chain_pem)
    ):
        install_pair(other.chain_pem, good.key_pem, **place)
    assert good.chain_pem == place["certificate"].read_bytes()


def test_a_failed_install_leaves_no_temporary_files(authority, tmp_path):
    """When the certificate's directory is missing, the prepared key is taken away again."""
    pair = authority.leaf("soak.test")
    here = tmp_path / "here"
    here.mkdir()

    with pytest.raises(FileNotFoundError):
        install_pair(
            pair.chain_pem, pair.key_pem, certificate=tmp_path / "missing" / "c.pem", key=here / "k.pem"
        )
    assert [] == list(here.iterdir())


def test_a_write_that_cannot_replace_its_target_leaves_nothing_behind(tmp_path):
    """Renaming over a directory fails; the temporary file is gone."""
    target = tmp_path / "a-directory"
    target.mkdir()

    with pytest.raises(OSError):
        write_atomically(target, b"x", mode=0o644)
    assert [target] == list(tmp_path.iterdir())


def test_serial_and_fingerprint_agree_with_openssl(authority):
    """PEM and DER of the same leaf give the same values, and they are those of the ssl module."""
    pair = authority.leaf("soak.test")
    der = ssl.PEM_cert_to_DER_cert(pair.chain_pem.decode())

    assert serial_of(der) == serial_of(pair.chain_pem)
    assert hashlib.sha256(der).hexdigest() == fingerprint_of(pair.chain_pem) == fingerprint_of(der)


@pytest.mark.parametrize(
    ("expected", "text"), [("a1b", "0A1B"), ("a1b", "0A:1B"), ("a1b", "a1b"), ("0", "00")]
)
def test_a_serial_has_one_spelling(expected, text):
    """Lower-case hexadecimal, no leading zeros, no colons."""
    assert expected == canonical_serial(text)


def test_garbage_has_no_serial():
    """Bytes that are no certificate are a ValueError."""
    with pytest.raises(ValueError):
        serial_of(b"garbage")
