"""Finds and imports an app by its target, the text that `penstock worker` takes.

    shop.tasks:app      an attribute of a module
    shop.tasks          the one App in a module
    tasks.py[:app]      the same of a file, wherever it lies

The current folder comes first on the path, as with `python -m`.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.app.app import App

log = logging.getLogger("penstock")

_loading: list[str] = []


def load_app(target: str) -> App:
    """Import the target's module and give the App in it; what is wrong is said in a sentence."""
    source, attribute = _split(target)
    before = set(sys.modules)
    _loading.append(target)
    try:
        module = _import_file(source) if source.endswith(".py") else _import_module(source)
    finally:
        _loading.pop()
    apps = _apps_in(module)
    if module.__name__ not in before:
        _warn_of_use(module.__name__, apps)
    if attribute:
        return _named(module, attribute, apps)
    if not apps:
        raise Refused(
            f"{source} has no App: write `app = App()` in it, or name the module that has one"
        )
    if len({id(app) for app in apps.values()}) > 1:
        names = " or ".join(f"{source}:{name}" for name in apps)
        raise Refused(f"{source} has {len(apps)} Apps: say which one, {names}")
    return apps["app"] if "app" in apps else next(iter(apps.values()))


def _warn_of_use(name: str, apps: Mapping[str, App]) -> None:
    """Of a module that enqueues where it is imported: whoever imports it would do so again."""
    used = any(app._broker and not app._given for app in apps.values())  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  an app and how it is found
    if used:
        log.warning(
            "%s used its store while it was imported: what it enqueues there is enqueued again by "
            "every process that imports it, as those of a worker do. Put that under "
            '`if __name__ == "__main__":`',
            name,
        )


def target_of(app: App) -> str | None:
    """Where another process finds this very app; None if no module has it by a name."""
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType):  # pyright: ignore[reportUnnecessaryIsInstance]  some packages put lazy objects there
            continue
        for attribute, value in list(vars(module).items()):
            if value is app and (source := _importable_name(name, module)):
                return f"{source}:{attribute}"
    return None


def loading() -> str | None:
    """The target whose module is being imported at this moment."""
    return _loading[-1] if _loading else None


def _split(target: str) -> tuple[str, str]:
    # A drive letter has a colon too; an attribute has no slash.
    source, colon, attribute = target.strip().rpartition(":")
    if not colon or not attribute.isidentifier():
        source, attribute = target.strip(), ""
    if not source:
        raise Refused(f"{target!r} names no app: write module:attribute, for example myapp:app")
    return source, attribute


def _import_module(name: str) -> ModuleType:
    if not re.fullmatch(r"\w+(\.\w+)*", name):
        raise Refused(
            f"{name!r} is not a module: write module:attribute (myapp:app), or a file (myapp.py)"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise Refused(
                f"{name} imports {missing}, which is not installed here; install it, or start this "
                "in the project's own environment"
            ) from error
        near = get_close_matches(name, [path.stem for path in Path(folder).glob("*.py")], 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise Refused(
            f"there is no module {missing} in {folder}, nor among what is installed.{hint} Start "
            "this in the project's folder, or name the file"
        ) from error


def _import_file(name: str) -> ModuleType:
    path = Path(name).resolve()
    if not path.is_file():
        raise Refused(f"there is no file {path}")
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and module.__name__ != "__main__" and Path(file) == path:
            return module
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").exists():  # a file of a package is that package's module
        parts.insert(0, root.name)
        root = root.parent
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    module_name = ".".join(parts)
    if len(parts) > 1 or module_name.isidentifier():
        importlib.invalidate_caches()
        module = importlib.import_module(module_name)
        if getattr(module, "__file__", None) and Path(module.__file__ or "").resolve() == path:
            return module
    # The name is taken, by the standard library for example, or is none.
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise Refused(f"{path} cannot be imported: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(module_name, module)
    spec.loader.exec_module(module)
    return module


def _apps_in(module: ModuleType) -> dict[str, App]:
    from penstock.app.app import App

    return {name: value for name, value in vars(module).items() if isinstance(value, App)}


def _named(module: ModuleType, attribute: str, apps: dict[str, App]) -> App:
    if attribute in apps:
        return apps[attribute]
    if hasattr(module, attribute):
        kind = type(getattr(module, attribute)).__name__
        problem = f"{attribute} in {module.__name__} is a {kind}, not an App"
    else:
        problem = f"{module.__name__} has no {attribute}"
    hint = f"; it has {', '.join(apps)}" if apps else "; write `app = App()` in it"
    raise Refused(problem + hint)


def _importable_name(name: str, module: ModuleType) -> str | None:
    spec = getattr(module, "__spec__", None)
    if name != "__main__":
        return name if spec is not None else None
    if spec is not None:  # python -m
        return spec.name
    file = getattr(module, "__file__", None)
    return str(Path(file).resolve()) if file else None
