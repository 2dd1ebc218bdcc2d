# Not on GPUs: tools of tests
"""Tools of tests. tools/fork_server.py: a program in a forked process behaves like one that was started.
tools/count_tests.py and expected_skips: what counts as passed, failed and skipped."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
import tensorflow as tf

import count_tests
import expected_skips
import fork_server
import forked

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


def test_a_forked_program_takes_long_arguments():
    """Together they are longer than a message of a socket."""
    code = "import sys; print([len(argument) for argument in sys.argv[1:]])"
    result = forked.run_code(code, *(letter * 100_000 for letter in "xyz"))
    assert result.stdout.strip() == str([100_000] * 3), result.stderr


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


def written(path: pathlib.Path) -> int:
    """The number in a file, as soon as there is one."""
    message = f"{path} was not written"
    return int(forked.wait_for(lambda: path.exists() and path.read_text(), message=message))


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
    child = written(pid)
    os.kill(written(asker_pid), signal.SIGKILL)
    run.communicate(timeout=60)
    forked.wait_for(lambda: not is_running(child), message="the program did not end with the one that asked")


GTEST = "<testsuites><testsuite name='Pool'>{}</testsuite></testsuites>"
PYTEST = "<testsuites><testsuite name='pytest'>{}</testsuite></testsuites>"
PASSED = "<testcase classname='a' name='passes'/>"
FAILED = "<testcase classname='a' name='fails'><failure/></testcase>"
ERROR = "<testcase classname='a' name='errs'><error/></testcase>"
DISABLED = "<testcase classname='a' name='is_disabled' status='notrun'/>"


def skipped(reason: str) -> str:
    return f"<testcase classname='a' name='skips'><skipped message='file.cc:3&#x0A;{reason}'/></testcase>"


class Run:
    """The events of a run of Bazel."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._events = []

    def test(self, name: str, report: str | None, status: str = "PASSED", **more: object) -> None:
        outputs = []
        if report is not None:
            path = self._folder / f"{name}.xml"
            path.write_text(report)
            outputs.append({"name": "test.xml", "uri": path.as_uri()})
        result = {"status": status, "testActionOutput": outputs, **more}
        self._events.append({"id": {"testResult": {"label": f"//:{name}"}}, "testResult": result})

    def unbuilt(self, name: str) -> None:
        configured = {
            "id": {"targetConfigured": {"label": f"//:{name}"}},
            "configured": {"testSize": "MEDIUM"},
        }
        self._events += [configured, {"id": {"targetCompleted": {"label": f"//:{name}"}}, "completed": {}}]

    def count(self, capsys) -> tuple[int, list[str]]:
        """The exit status, and the lines printed."""
        path = self._folder / "events"
        path.write_text("\n".join(json.dumps(event) for event in self._events))
        status = count_tests.main([str(path)])
        return status, capsys.readouterr().out.splitlines()


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(tmp_path)


def test_cases_are_counted_over_targets(run, capsys):
    run.test("one", GTEST.format(PASSED + DISABLED))
    run.test("two", PYTEST.format(PASSED + PASSED + skipped("as the plugin allows")))
    assert run.count(capsys) == (0, ["skipped: 1 of //:one", "skipped: 1 of //:two", "3 passed, 0 failed"])


def test_failed_cases_are_named(run, capsys):
    run.test("one", GTEST.format(PASSED + FAILED), "FAILED")
    run.test("two", PYTEST.format(ERROR), "FAILED")
    assert run.count(capsys) == (1, ["failed: //:one a.fails", "failed: //:two a.errs", "1 passed, 2 failed"])


def test_the_end_of_a_message_follows_a_failed_case(run, capsys):
    lines = "".join(f"line {i}\n" for i in range(100))
    run.test(
        "one",
        PYTEST.format(f"<testcase classname='a' name='fails'><failure>{lines}</failure></testcase>"),
        "FAILED",
    )
    status, printed = run.count(capsys)
    assert status == 1 and printed[0] == "failed: //:one a.fails" and printed[-1] == "0 passed, 1 failed"
    assert printed[1:-1] == [f"    line {i}" for i in range(88, 100)]


def test_a_target_that_fails_without_a_failed_case_is_a_failure(run, capsys):
    run.test("crashes", GTEST.format(PASSED), "FAILED")
    run.test("hangs", None, "TIMEOUT")
    run.unbuilt("unbuilt")
    status, lines = run.count(capsys)
    assert status == 1 and lines[-1] == "1 passed, 3 failed"
    assert lines[:-1] == [
        "failed: //:crashes (failed)",
        "failed: //:hangs (timeout)",
        "failed: //:unbuilt (not built)",
    ]


def test_a_skip_that_is_not_expected_is_a_failure(run, capsys, monkeypatch):
    monkeypatch.setattr(count_tests, "_EXPECTED_SKIPS", {"no device": True, "a device": False})
    for reason in ("no device", "a device", "no reason that is listed"):
        run.test(reason.replace(" ", "_"), GTEST.format(skipped(reason)))
    assert run.count(capsys) == (
        1,
        [
            "skipped: 1 of //:no_device",
            "failed: //:a_device a.skips (skipped)",
            "    file.cc:3",
            "    a device",
            "failed: //:no_reason_that_is_listed a.skips (skipped)",
            "    file.cc:3",
            "    no reason that is listed",
            "0 passed, 2 failed",
        ],
    )


def test_targets_that_take_long_are_named(run, capsys):
    run.test("quick", GTEST.format(PASSED), testAttemptDurationMillis="900")
    run.test("slower", GTEST.format(PASSED), testAttemptDurationMillis="31400")
    run.test("slowest", GTEST.format(PASSED), testAttemptDurationMillis="90000")
    run.test("cached", GTEST.format(PASSED), testAttemptDurationMillis="80000", cachedLocally=True)
    slow = ["slow: 90 s //:slowest", "slow: 31 s //:slower"]
    assert run.count(capsys) == (0, [*slow, "4 passed, 0 failed"])


def test_a_run_without_tests_is_a_failure(run, capsys):
    assert run.count(capsys) == (1, ["No test ran.", "0 passed, 0 failed"])


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("needs a reason", False),
        ("", False),
        ("root reads everything", os.geteuid() == 0),
        ("not only root reads everything", False),
        ("this TensorFlow has no Estimator", not hasattr(tf, "estimator")),
        (f"TensorFlow {tf.__version__} has no Estimator", not hasattr(tf, "estimator")),
    ],
)
def test_the_reason_decides(reason, expected):
    assert expected_skips.is_expected(reason) == expected


def outcomes(tmp_path: pathlib.Path, code: str) -> tuple[int, int, dict[str, str]]:
    """Runs pytest with the plugin; returns (exit status, number of files skipped completely, outcomes)."""
    file, report = tmp_path / f"{tmp_path.name}_test.py", tmp_path / "report.xml"
    file.write_text(f"import pytest\n{code}")
    plugin = expected_skips.Plugin()
    options = ["-p", "no:cacheprovider", "-q", "--rootdir", str(tmp_path), f"--junitxml={report}"]
    status = pytest.main([*options, str(file)], plugins=[plugin])
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return (
        int(status),
        plugin.modules,
        {case.get("name"): case[0].tag if len(case) else "passed" for case in cases},
    )


def test_skips_of_tests(tmp_path, monkeypatch):
    monkeypatch.setitem(expected_skips._EXPECTED, "as agreed", lambda: True)
    status, _, cases = outcomes(
        tmp_path,
        """
@pytest.fixture
def fixture(): pytest.skip("fixture")
@pytest.mark.skip(reason="mark")
def test_mark(): pass
@pytest.mark.skipif(True, reason="as agreed")
def test_agreed(): pass
def test_body(): pytest.skip("body")
def test_fixture(fixture): pass
def test_import(): pytest.importorskip("no_such_module")
@pytest.mark.xfail
def test_known(): assert False
def test_passes(): pass
""",
    )
    assert status == pytest.ExitCode.TESTS_FAILED
    assert cases == {
        "test_mark": "error",
        "test_agreed": "skipped",
        "test_body": "failure",
        "test_fixture": "error",
        "test_import": "failure",
        "test_known": "skipped",
        "test_passes": "passed",
    }


@pytest.mark.parametrize("expected", [True, False])
def test_a_file_that_skips_itself(tmp_path, monkeypatch, expected):
    monkeypatch.setitem(expected_skips._EXPECTED, "the whole file", lambda: expected)
    status, modules, _ = outcomes(tmp_path, "pytest.skip('the whole file', allow_module_level=True)")
    assert modules == expected
    assert status == (pytest.ExitCode.NO_TESTS_COLLECTED if expected else pytest.ExitCode.INTERRUPTED)
