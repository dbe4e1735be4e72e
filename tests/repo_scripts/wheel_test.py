"""scripts/wheel.py: whose torch it takes, and what it makes of the backend's wheel.

    python3 tests/repo_scripts/wheel_test.py
"""
import base64
import hashlib
import pathlib
import shutil
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import wheel  # noqa: E402

METADATA = ("Metadata-Version: 2.1\nName: tessera\nVersion: 0.1.0\n"
            "Requires-Dist: torch<2.15,>=2.11\nRequires-Dist: numpy\n\nVersion: 0.1.0\n")
WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n"


class WheelTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name)

    def finished(self, libraries=()):
        path = self.work / "tessera-0.1.0-cp311-cp311-linux_x86_64.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("tessera/__init__.py", "x = 1\n")
            for library in libraries:
                archive.write(library, f"tessera/{pathlib.Path(library).name}.so")
            info = "tessera-0.1.0.dist-info"
            archive.writestr(f"{info}/METADATA", METADATA)
            archive.writestr(f"{info}/WHEEL", WHEEL)
            archive.writestr(f"{info}/RECORD", "tessera/__init__.py,,\n")
        output = self.work / "out"
        output.mkdir(exist_ok=True)
        return wheel.finish(path, "2.13", output)

    def test_the_torch_is_in_the_name_and_in_what_is_required(self):
        path = self.finished()
        self.assertEqual(
            path.name, "tessera-0.1.0+torch2.13-cp311-cp311-manylinux_2_17_x86_64.whl")
        with zipfile.ZipFile(path) as archive:
            info = "tessera-0.1.0+torch2.13.dist-info"
            metadata = archive.read(f"{info}/METADATA").decode()
            head, _, text = metadata.partition("\n\n")
            self.assertIn("\nVersion: 0.1.0+torch2.13\n", head)
            self.assertIn("\nRequires-Dist: torch==2.13.*\nRequires-Dist: numpy", head)
            self.assertEqual(text, "Version: 0.1.0\n")  # the description stays
            self.assertIn("Tag: cp311-cp311-manylinux_2_17_x86_64",
                          archive.read(f"{info}/WHEEL").decode())

    def test_the_record_has_each_file_with_its_hash(self):
        with zipfile.ZipFile(self.finished()) as archive:
            names = set(archive.namelist())
            record = archive.read("tessera-0.1.0+torch2.13.dist-info/RECORD").decode()
            lines = [line.split(",") for line in record.splitlines()]
            self.assertEqual({name for name, *_ in lines}, names)
            for name, digest, size in lines:
                if name.endswith("RECORD"):
                    continue
                data = archive.read(name)
                want = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
                self.assertEqual((digest, size),
                                 ("sha256=" + want.rstrip("="), str(len(data))))

    @unittest.skipUnless(shutil.which("readelf"), "no readelf")
    def test_a_library_asks_for_versions(self):
        versions = wheel.needed_versions(pathlib.Path(shutil.which("readelf")).read_bytes())
        self.assertTrue(any(v.startswith("GLIBC_2.") for v in versions), versions)
        self.assertIn("manylinux_2_", self.finished([shutil.which("readelf")]).name)

    def test_the_tag_is_that_of_the_newest_version(self):
        for versions, tag in (
                ({"GLIBC_2.4", "GLIBC_2.34", "GLIBCXX_3.4.21"}, "manylinux_2_34_x86_64"),
                ({"GLIBC_2.2.5", "GLIBCXX_3.4.30"}, "manylinux_2_35_x86_64"),
                ({"GLIBC_2.4", "GLIBCXX_3.4.99"}, "linux_x86_64"),
                ({"GLIBC_2.4", "GLIBCXX_3.4.3"}, "manylinux_2_17_x86_64")):
            self.assertEqual(wheel.platform_tag(versions, "linux_x86_64"), tag, versions)

    def test_a_python_without_a_supported_torch_is_named(self):
        self.assertIsNone(wheel.torch_of(self.work / "no_python"))
        fake = self.work / "python"
        for version, found in (("2.13.1", ("/its/python", "2.13.1")), ("2.10.0", None)):
            package = self.work / version / "torch"
            package.mkdir(parents=True)
            (package / "version.py").write_text(f"__version__ = '{version}'\n")
            fake.write_text(f"#!/bin/sh\necho /its/python\necho {package}/__init__.py\n")
            fake.chmod(0o755)
            self.assertEqual(wheel.torch_of(fake), found)
        with self.assertRaisesRegex(SystemExit, "has no torch of a supported version"):
            wheel.installed([fake])


if __name__ == "__main__":
    unittest.main()
