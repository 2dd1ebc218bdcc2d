"""tools/fork_server.py: a program in a forked process behaves like one that was started."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

import fork_server

# A client, with a copy of the module, so that its server is not shared with other runs of the tests.
ASKER = """
import os, sys
sys.path.insert(0, os.path.dirname(sys.argv[0]))
import fork_server
status = fork_server.run_in_fork([sys.argv[1], "first", "second"])
print("status", status)
"""

PROGRAM = """
import os, sys
print("modules", "tensorflow" in sys.modules, "fork_server" in sys.modules)
print("arguments", sys.argv[1:], __name__)
print("environment", os.environ.get("MARK"), os.getcwd())
print("to the other stream", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A folder with the module and the programs asker.py and program.py."""
    path = tmp_path_factory.mktemp("checkout") / "tools"
    path.mkdir()
    shutil.copy(fork_server.__file__, path)
    for module in ("tensorflow", "pytest"):  # empty replacements of the modules that a server imports
        (path / f"{module}.py").touch()
    (path / "asker.py").write_text(ASKER)
    (path / "program.py").write_text(PROGRAM)
    return path


def command(folder: pathlib.Path, program: pathlib.Path) -> list[str]:
    return [sys.executable, str(folder / "asker.py"), str(program)]


def beside_a_server(folder: pathlib.Path, *args: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, str(folder / "fork_server.py"), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_without_a_server_no_process_is_forked(folder):
    output = subprocess.run(command(folder, folder / "program.py"), capture_output=True, text=True).stdout
    assert output == "status None\n"


def test_a_program_gets_the_clients_arguments_and_environment(folder, tmp_path):
    environment = {**os.environ, "MARK": "here"}
    asker = ["env", "-C", str(tmp_path), *command(folder, folder / "program.py")]
    output, errors = beside_a_server(folder, *asker, env=environment).communicate(timeout=60)
    assert output.splitlines() == [
        "modules True False",
        "arguments ['first', 'second'] __main__",
        f"environment here {tmp_path}",
        "status 7",
    ]
    assert errors.splitlines()[-1] == "to the other stream"


IMPORTER = """
import builtins, sys
compiled, compile_ = [], builtins.compile

def recorded(source, path, *args, **options):
    compiled.append(path)
    return compile_(source, path, *args, **options)

builtins.compile = recorded
sys.path.insert(0, sys.argv[1])
import known, same, changed
for module in (known, same, changed):
    print(module.__name__, module.value(), module.__file__ == module.value.__code__.co_filename)
print("compiled", [path[len(sys.argv[1]) + 1 :] for path in compiled])
"""


def test_modules_of_the_checkout_are_not_compiled_again(folder, tmp_path):
    """A process that sees the same sources at another path uses the server's code; others are compiled."""
    modules, elsewhere = folder.parent / "python", tmp_path / "elsewhere"
    modules.mkdir()
    (modules / "wrong.py").write_text("this is no Python")
    for name, source in (("known", "'known'"), ("changed", "'as it was'")):
        (modules / f"{name}.py").write_text(f"def value():\n    return {source}\n")
    shutil.copytree(modules, elsewhere)
    shutil.copy(elsewhere / "known.py", elsewhere / "same.py")
    (elsewhere / "changed.py").write_text("def value():\n    return 'as it is'\n")
    program = tmp_path / "importer.py"
    program.write_text(IMPORTER)
    run = [sys.executable, str(folder / "fork_server.py"), "--fork", str(program), str(elsewhere)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    output, errors = beside_a_server(folder, *run, env=environment).communicate(timeout=60)
    assert output.splitlines() == [
        "known known True",
        "same known True",
        "changed as it is True",
        "compiled ['same.py', 'changed.py']",
    ], errors


def test_the_server_exits_with_the_commands_status(folder):
    process = beside_a_server(folder, sys.executable, "-c", "import sys; sys.exit(5)")
    process.communicate(timeout=60)
    assert process.returncode == 5


@pytest.mark.parametrize("beside", [True, False], ids=["a server", "no server"])
def test_a_program_that_is_to_be_forked_ends_as_it_would_alone(folder, beside):
    """It is forked if there is a server, and is started if there is none."""
    run = [sys.executable, str(folder / "fork_server.py"), "--fork", str(folder / "program.py"), "argument"]
    process = (
        beside_a_server(folder, *run) if beside else subprocess.Popen(run, stdout=subprocess.PIPE, text=True)
    )
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 7
    assert output.splitlines()[:2] == [f"modules {beside} False", "arguments ['argument'] __main__"]


def test_a_signal_that_ends_a_forked_program_ends_its_client(folder, tmp_path):
    program = tmp_path / "killed.py"
    program.write_text("import os\nos.kill(os.getpid(), 9)")
    code = "import subprocess, sys; print(subprocess.run(sys.argv[1:]).returncode)"
    run = [sys.executable, str(folder / "fork_server.py"), "--fork", str(program)]
    output, _ = beside_a_server(folder, sys.executable, "-c", code, *run).communicate(timeout=60)
    assert output == "-9\n"


def wait_for(path: pathlib.Path) -> str:
    for _ in range(3000):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written")


def is_running(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_ends_with_its_client(folder, tmp_path):
    program, asker_pid, pid = tmp_path / "sleeps.py", tmp_path / "asker", tmp_path / "program"
    program.write_text(f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    # `exec` keeps the process id of the shell.
    script = 'echo $$ > "$0" && exec "$@"'
    run = beside_a_server(folder, "sh", "-c", script, str(asker_pid), *command(folder, program))
    child = int(wait_for(pid))
    os.kill(int(wait_for(asker_pid)), signal.SIGKILL)
    run.communicate(timeout=60)
    for _ in range(3000):
        if not is_running(child):
            return
        time.sleep(0.02)
    raise AssertionError("the program outlived the one that asked for it")
