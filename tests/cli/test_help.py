"""Help: what comes first is what one needs first."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from penstock.cli.root import root, root_for

COMMANDS = [command.name for command in root.registered_commands]


def test_the_first_seven_come_first(cli):
    text = cli("--help").stdout

    shown = [
        name
        for line in text.splitlines()
        if (name := line[2:].partition(" ")[0] if line.startswith("  ") else "") in COMMANDS
    ]
    assert shown[:7] == ["init", "dev", "worker", "run", "enqueue", "find", "show"]
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


@pytest.mark.parametrize("words", [("find", "state:ready"), ("count",), ("pause", "mail")])
def test_a_command_whose_options_are_text_starts_without_pydantic(shop, words):
    shop("enqueue", "shop:add", "1", "2")
    program = (
        "import sys\n"
        "from penstock.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], check=True, capture_output=True, text=True
    )

    assert done.stdout.splitlines()[-1] == "False"


def test_an_option_that_is_no_text_is_still_converted_and_checked(shop):
    for number in ("1", "2", "3"):
        shop("enqueue", "shop:add", number, "2")

    assert len(shop.lines("find", "--limit", "2")) == 2
    assert "'many' is not a whole number" in shop("find", "--limit", "many", code=2).stderr
    assert "'--limit': 0 is less than 1" in shop("find", "--limit", "0", code=2).stderr
    assert "99999 is more than 65535" in shop("dashboard", "--port", "99999", code=2).stderr


def test_a_wrong_choice_is_named_with_those_that_there_are(shop):
    wrong = shop("queue", "mail", "timeout=3s", code=2).stderr

    assert "'mail' is not one of show, set, reset, create, drop" in wrong
    assert "Value error" not in wrong
    assert "'lakes' is not one of store, lake" in (
        shop("pipeline", "report", "--from", "lakes", code=2).stderr
    )


def test_only_the_command_that_is_called_is_made():
    assert [command.name for command in root_for(["find", "pause"]).registered_commands] == ["find"]
    for words in ([], ["--help"], ["fnd"]):
        assert root_for(words) is root


def test_the_version_is_shown(cli):
    assert re.fullmatch(r"penstock \d+\.\d+\.\d+\n", cli("--version").stdout)


def test_a_command_that_does_not_exist_is_named_with_the_nearest(cli):
    assert "Did you mean 'find'" in cli("fnd", code=2).stderr


def test_the_list_of_commands_cuts_nothing(cli):
    text = " ".join(cli("--help").stdout.replace("COMMAND [ARGS]...", "").split())

    assert "..." not in text
    for command in root.registered_commands:
        assert command.callback is not None
        first = (command.callback.__doc__ or "").split("\n\n")[0]
        assert " ".join(first.split()).partition(". ")[0].rstrip(".") in text, command.name
