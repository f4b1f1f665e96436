"""Help: what comes first is what one needs first."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from penstock.cli.root import root

COMMANDS = [command.name for command in root.registered_commands]


def test_the_first_seven_come_first(cli):
    text = cli("--help").stdout

    shown = [
        name
        for line in text.splitlines()
        if (name := line.split(maxsplit=1)[0] if line.startswith("  ") else "") in COMMANDS
    ]
    assert shown[:7] == ["init", "dev", "worker", "run", "enqueue", "find", "why"]
    assert shown == COMMANDS
    groups = re.findall(r"^(\w.*):$", text, re.MULTILINE)
    assert groups[1:3] == ["Start here", "Pause, block, limit"]


def test_no_words_at_all_show_the_help(cli):
    result = cli(code=2)

    assert "Start here:" in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_each_help_teaches_with_an_example_and_offers_json(cli, command):
    text = cli(command, "--help").stdout

    assert f"Example: penstock {command}" in text
    assert "--json" in text


def test_help_loads_nothing_that_it_does_not_need():
    program = (
        "import sys\n"
        "sys.argv = ['penstock', '--help']\n"
        "from penstock.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = ('asyncio', 'rich', 'sqlite3', 'pydantic')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert done.stdout.splitlines()[-1] == "[]"


def test_the_version_is_shown(cli):
    assert re.fullmatch(r"penstock \d+\.\d+\.\d+\n", cli("--version").stdout)


def test_a_command_that_does_not_exist_is_named_with_the_nearest(cli):
    assert "Did you mean 'find'" in cli("fnd", code=2).stderr
