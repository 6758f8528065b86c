"""Certificates made by openssl for one test: an authority, and who it signs."""

import subprocess


class Authority:
    """A certificate authority with its files in `folder`."""

    def __init__(self, folder, name="authority"):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.certificate = folder / f"{name}.pem"
        self.key = folder / f"{name}.key"
        run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", f"/CN={name}",
            "-keyout", self.key, "-out", self.certificate)

    def sign(self, name, *alternative_names):
        """Makes `name`.pem and `name`.key in the folder, new ones each time, and returns their
        paths. Each file appears by one rename."""
        request, certificate, key = (self.folder / f"{name}.{kind}" for kind in ("csr", "pem", "key"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text("subjectAltName = " + ",".join(alternative_names) + "\n" if alternative_names else "\n")
        fresh_certificate, fresh_key = certificate.with_suffix(".pem.new"), key.with_suffix(".key.new")
        run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
            "-keyout", fresh_key, "-out", request)
        run("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", "1",
            "-extfile", extensions, "-out", fresh_certificate)
        fresh_key.rename(key)
        fresh_certificate.rename(certificate)
        return certificate, key


def run(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)
