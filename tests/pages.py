"""Runs scripts of the documentation, each in its own forked process with all imports made: `python -m tests.pages`.

Each line of standard input is a JSON object with the arguments of `run`. For each line a process is forked that works like
`python argv`; its exit code is printed. The imports take seconds, but are made only once.
"""

from __future__ import annotations

import faulthandler
import json
import os
import runpy
import sys
import threading
import traceback
from pathlib import Path

from tests.bounds import SECONDS


def run(argv: list[str], folder: str, environment: dict[str, str]) -> int:
    """Run a script, or a module after `-m`, in a folder; its output goes to the files `out` and `err` there."""
    os.chdir(folder)
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # The old object may hold buffered requests of the parent process.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the script runs
    os.environ.update(environment)
    # After this time the script ends, with the tracebacks of its threads on standard error.
    faulthandler.dump_traceback_later(2 * SECONDS, exit=True)
    try:
        if argv[0] == "-m":
            sys.argv = argv[1:]
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = argv
            sys.path[0] = str(Path(argv[0]).parent)
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the cause of the script's end is printed
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Import the libraries, then run the requested scripts."""
    import langchain_openai  # noqa: F401
    import langgraph.checkpoint.sqlite  # noqa: F401
    import sentence_transformers  # noqa: F401

    import langgraph_convcoa.graph  # noqa: F401

    # Only this thread continues in a forked process, so there must be no other.
    assert threading.active_count() == 1, threading.enumerate()
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            sys.exit(run(**json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
