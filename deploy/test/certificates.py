"""Certificates as cert-manager stores them in Secrets: tls.crt, tls.key, and ca.crt with the certificate authority."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def _pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def new_key():
    """Returns a key and its file's content in SEC 1, which is cert-manager's default format."""
    key = ec.generate_private_key(ec.SECP256R1())
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    return key, text.decode()


class Authority:
    """A certificate authority. Its certificates are valid for an hour."""

    def __init__(self, name):
        self.key, _ = new_key()
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        constraint = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self._sign(self.name, self.key.public_key(), constraint)
        self.pem = _pem(self.certificate)

    def secret(self, name):
        """Returns the data of a Secret for a Service with that name."""
        return self._issue(x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))

    def client_secret(self, who):
        """Returns the data of a Secret for a client: its kind and name, as in service/supervisor."""
        return self._issue(x509.UniformResourceIdentifier(f"spiffe://example.org/troupe/{who}"))

    def _issue(self, *names):
        key, private = new_key()
        certificate = self._sign(x509.Name([]), key.public_key(), x509.SubjectAlternativeName(names))
        return {"tls.crt": _pem(certificate), "tls.key": private, "ca.crt": self.pem}

    def _sign(self, subject, public_key, extension):
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = x509.CertificateBuilder(
            issuer_name=self.name,
            subject_name=subject,
            public_key=public_key,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - datetime.timedelta(minutes=5),
            not_valid_after=now + datetime.timedelta(hours=1),
        )
        # The extension is critical if the certificate contains no other name.
        critical = not list(subject) or isinstance(extension, x509.BasicConstraints)
        return builder.add_extension(extension, critical=critical).sign(self.key, hashes.SHA256())
