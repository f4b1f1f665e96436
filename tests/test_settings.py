"""Which store is meant, and who said so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock import App
from penstock.app.settings import anchor, mask, project_root, resolve_app_name, resolve_url
from penstock.brokers import open_broker
from penstock.errors import Refused


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    monkeypatch.delenv("PENSTOCK_PROFILE", raising=False)
    monkeypatch.delenv("PENSTOCK_SETTINGS", raising=False)
    monkeypatch.delenv("PENSTOCK_APP_NAME", raising=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose app sits one folder down."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "shop" / "tasks.py").touch()
    return tmp_path


def test_the_argument_goes_before_everything(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "memory:")

    resolved = resolve_url("sqlite:////var/jobs.db", project / "shop" / "tasks.py")

    assert resolved[:2] == ("sqlite:////var/jobs.db", "App(url)")


def test_the_environment_goes_before_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "penstock.toml").write_text('[profiles.default]\nurl = "memory:"\n')
    monkeypatch.setenv("PENSTOCK_URL", "sqlite:///env.db")

    resolved = resolve_url(None, project / "shop" / "tasks.py")

    assert resolved[:2] == (f"sqlite:///{project}/env.db", "PENSTOCK_URL")


def test_the_file_is_found_upward_and_has_profiles(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project / "penstock.toml"
    file.write_text(
        '[profiles.default]\nurl = "sqlite:///a/b.db"\n[profiles.test]\nurl = "memory:"\n'
    )
    beside = project / "shop" / "tasks.py"

    assert resolve_url(None, beside)[:2] == (
        f"sqlite:///{project}/a/b.db",
        f"profile default of {file}",
    )
    monkeypatch.setenv("PENSTOCK_PROFILE", "test")
    assert resolve_url(None, beside)[:2] == ("memory:", f"profile test of {file}")
    monkeypatch.setenv("PENSTOCK_PROFILE", "live")
    with pytest.raises(Refused, match=r"no profile 'live'.*there is: default, test"):
        resolve_url(None, beside)


def test_a_profile_without_a_file_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_PROFILE", "live")

    with pytest.raises(Refused, match=r"profile live: there is no penstock\.toml"):
        resolve_url(None, project / "shop" / "tasks.py")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[profiles.default]\nurl = 7", "has no url"),
        ("[profiles", "cannot be read"),
        ('ap = "shop:app"', "'ap' is not known; there are app, app_name, profiles"),
    ],
)
def test_a_bad_file_is_told(project: Path, text: str, message: str) -> None:
    (project / "penstock.toml").write_text(text)

    with pytest.raises(Refused, match=message):
        resolve_url(None, project / "shop" / "tasks.py")


def test_the_default_is_a_file_beside_the_project_never_the_working_directory(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))

    resolved = resolve_url(None, project / "shop" / "tasks.py")

    assert resolved.url == f"sqlite:///{project}/penstock.db"
    assert "the default" in resolved.source


def test_a_file_without_a_project_is_its_own(tmp_path: Path) -> None:
    # The folders above a test's own may hold anything: the innermost mark counts.
    (tmp_path / "setup.py").touch()

    assert project_root(tmp_path / "script.py") == tmp_path


def test_an_app_is_anchored_at_the_file_that_makes_it(project: Path) -> None:
    script = project / "shop" / "tasks.py"
    script.write_text("from penstock import App\nprint(App().resolved_url.url)\n")

    printed = subprocess.run(
        [sys.executable, str(script)], cwd="/", capture_output=True, text=True, check=True
    ).stdout

    assert printed.strip() == f"sqlite:///{project}/penstock.db"


def test_making_an_app_opens_nothing(project: Path) -> None:
    app = App(f"sqlite:///{project}/new.db")

    assert app.describe() == f"sqlite:///{project}/new.db (App(url))"
    assert not (project / "new.db").exists()


def test_only_relative_sqlite_paths_are_anchored() -> None:
    root = Path("/srv/shop")

    assert anchor("sqlite:///jobs.db", root) == "sqlite:////srv/shop/jobs.db"
    assert anchor("sqlite:////var/jobs.db", root) == "sqlite:////var/jobs.db"
    assert anchor("memory:", root) == "memory:"
    with pytest.raises(Refused, match="names no file"):
        anchor("sqlite:///", root)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:s3cret@db/shop", "postgresql://ada:***@db/shop"),
        ("redis://:s3cret@db:6379/0", "redis://:***@db:6379/0"),
        (
            "postgresql://db/shop?user=ada&password=s3cret&x=1",
            "postgresql://db/shop?user=ada&password=***&x=1",
        ),
        ("postgresql://ada:s3@cret@db/shop", "postgresql://ada:***@db/shop"),
        ("postgresql://ada:s3/cret@db/shop", "postgresql://ada:***@db/shop"),
        ("postgresql://ada:s3?cret@db/shop", "postgresql://ada:***@db/shop"),
        ("postgresql://ada:s3#cret@db/shop", "postgresql://ada:***@db/shop"),
        # The last @ may be the password's own.
        ("postgresql://ada:s3cret@db/shop?user=a@b", "postgresql://ada:***@b"),
        ("postgresql://ada@corp:s3cret@db/shop", "postgresql://ada@corp:***@db/shop"),
        ("postgresql://ada:s3:cr:et@db:5432/shop", "postgresql://ada:***@db:5432/shop"),
        ("postgresql://ada:s3/cr?e#t@x@db/shop", "postgresql://ada:***@db/shop"),
        ("postgresql://ada:s3cret/shop", "postgresql://ada:***"),
        ("ada:s3cret@db/shop", "ada:***@db/shop"),
        ("postgresql:/ada:s3cret@db/shop", "postgresql:***@db/shop"),
        ("host=db user=ada password=s3cret", "***"),
        ("host=db user=ada PASSWORD = 's3 cret'", "***"),
        ("host=db sslpassword=s3cret", "***"),
        ("postgresql://db/shop?sslpassword=s3cret", "postgresql://db/shop?sslpassword=***"),
        ("postgresql://db/shop?p%61ssword=s3cret", "postgresql://db/shop?p%61ssword=***"),
        ("postgresql://db/shop?x=1&PassWord=s3cret", "postgresql://db/shop?x=1&PassWord=***"),
        ("postgresql://db/shop?password=s3&cret&x=1", "postgresql://db/shop?password=***&x=1"),
        ("postgresql://db/shop?password=s3?cret#s3=s3", "postgresql://db/shop?password=***"),
        ("redis://db/0?api_key=s3&auth_token=s3", "redis://db/0?api_key=***&auth_token=***"),
        ("sqlite:///jobs.db?client_secret=s3", "sqlite:///jobs.db?client_secret=***"),
        ("postgresql://ada@db:5432/shop?x=1", "postgresql://ada@db:5432/shop?x=1"),
        ("postgresql://db:5432/shop", "postgresql://db:5432/shop"),
        ("postgresql://a:1,b:2/shop", "postgresql://a:1,b:2/shop"),
        ("postgresql://[::1]:5432/shop", "postgresql://[::1]:5432/shop"),
        ("postgresql:///shop?host=/run/pg:1", "postgresql:///shop?host=/run/pg:1"),
        ("sqlite:////var/a:b@c/jobs.db", "sqlite:////var/a:b@c/jobs.db"),
        ("memory:", "memory:"),
        ("sqlite:////var/jobs.db", "sqlite:////var/jobs.db"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert mask(url) == shown


def test_an_unknown_scheme_is_refused_with_those_that_exist() -> None:
    there_are = r"sqlite:///path/to/file\.db, postgresql://.* and memory:"
    with pytest.raises(Refused, match=rf"amqp://ada:\*\*\*@x.*{there_are}"):
        open_broker("amqp://ada:s3cret@x")
    with pytest.raises(Refused, match="no such option 'mode'"):
        open_broker("sqlite:////tmp/x.db?mode=ro")


def test_without_any_mark_the_root_is_outside_of_the_package(tmp_path: Path) -> None:
    package = tmp_path / "shop" / "mail"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()

    assert project_root(package / "tasks.py") == project_root(tmp_path / "script.py")


# The app's name


def test_an_app_without_a_name_is_one_of_all_unnamed_ones(project: Path) -> None:
    assert resolve_app_name(project / "shop" / "tasks.py") == ("", "the default")
    assert App("memory:").name == ""


def test_the_name_is_the_argument_or_the_environment_or_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, file = project / "shop" / "tasks.py", project / "penstock.toml"
    file.write_text('app_name = "shop"\n[profiles.default]\nurl = "memory:"\n')

    assert resolve_app_name(beside) == ("shop", f"app_name of {file}")
    assert resolve_url(None, beside).url == "memory:"
    monkeypatch.setenv("PENSTOCK_APP_NAME", "media")
    assert resolve_app_name(beside) == ("media", "PENSTOCK_APP_NAME")
    assert App("memory:").name == "media"
    assert App("memory:", name="front").name == "front"
    assert App("memory:", name="").name == ""


@pytest.mark.parametrize("name", ["a b", "x" * 201, "a\x00"])
def test_a_name_is_checked_as_that_of_a_queue(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match=r"app .*: 1 to 200 characters out of letters"):
        App("memory:", name=name)
    if "\x00" not in name:
        monkeypatch.setenv("PENSTOCK_APP_NAME", name)
        with pytest.raises(Refused, match=r"app \(PENSTOCK_APP_NAME\) .*: 1 to 200 characters"):
            _ = App("memory:").name
    with pytest.raises(Refused, match=r"app .*: 1 to 200 characters"):
        App("memory:").declare("media:resize", app=name)(lambda: None)


def test_a_name_that_is_no_text_is_refused_with_its_file(project: Path) -> None:
    (project / "penstock.toml").write_text("app_name = 7\n")

    with pytest.raises(Refused, match="app_name = 7: a text"):
        resolve_app_name(project / "shop" / "tasks.py")


def test_a_settings_file_elsewhere_is_named_by_the_environment(tmp_path, monkeypatch):
    """For processes whose working folder nobody chooses, as those of a Spark Connect server."""
    (tmp_path / "shop.toml").write_text('[profiles.lab]\nurl = "sqlite:///lab.db"\n')
    monkeypatch.setenv("PENSTOCK_SETTINGS", str(tmp_path / "shop.toml"))

    assert resolve_url(None, profile="lab").url == f"sqlite:///{tmp_path}/lab.db"

    monkeypatch.setenv("PENSTOCK_SETTINGS", str(tmp_path / "gone.toml"))
    with pytest.raises(Refused, match=r"gone\.toml: there is no such file"):
        resolve_url(None, profile="lab")
