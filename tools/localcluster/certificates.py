"""A certificate authority for one control plane, and the key of its service accounts."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = datetime.timedelta(days=7)
CLOCK_SKEW = datetime.timedelta(minutes=5)


class CertificateAuthority:
    """Issues the server and client certificates of one control plane; its own key is kept only in memory."""

    def __init__(self, directory: Path) -> None:
        """Creates a new authority and writes its certificate to the directory."""
        self.directory = directory
        self.certificate_file = directory / "ca.crt"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test control plane")])
        builder = _certificate(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        certificate = builder.sign(self._key, hashes.SHA256())
        self.certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, certificate_file: Path, key_file: Path, *, dns_names: list[str], addresses: list[str]) -> None:
        """Writes a server certificate for the given names and IP addresses, and its key."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, certificate_file.stem)])
        alternatives: list[x509.GeneralName] = [x509.DNSName(dns_name) for dns_name in dns_names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        self._issue(certificate_file, key_file, name, [x509.SubjectAlternativeName(alternatives), usage])

    def issue_to_client(self, certificate_file: Path, key_file: Path, *, user: str, group: str) -> None:
        """Writes a client certificate that authenticates a user and its group to Kubernetes, and its key."""
        name = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, user)]
        )
        self._issue(certificate_file, key_file, name, [x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])])

    def _issue(
        self, certificate_file: Path, key_file: Path, name: x509.Name, extensions: Sequence[x509.ExtensionType]
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _certificate(name, self._name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        write_private_key(key, key_file)


def write_service_account_key(key_file: Path) -> None:
    """Writes the key that signs and verifies service account tokens."""
    write_private_key(ec.generate_private_key(ec.SECP256R1()), key_file)


def write_private_key(key: ec.EllipticCurvePrivateKey, key_file: Path) -> None:
    """Writes a key, as PEM, readable by its owner only."""
    key_file.touch(mode=0o600)
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
