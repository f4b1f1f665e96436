"""What a function says about itself: its name, its call as text, and its annotations, resolved.

Annotations may be text that names what is defined later, or inside of a function; both are looked
up as late as possible, and a name that cannot be found is told with its parameter.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from penstock.errors import Refused


def check_function(function: Any) -> None:
    """Refuse what no worker could call, or whose result nobody could store."""
    what = f"@app.task over {getattr(function, '__qualname__', None) or repr(function)}"
    if isinstance(function, staticmethod):
        raise Refused(f"{what}: write @staticmethod above @app.task, not below it")
    if hasattr(function, "enqueue"):
        raise Refused(f"{what}: it is a task already; give the first @app.task all its options")
    if not inspect.isfunction(function):
        raise Refused(f"{what}: a task is made of a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Refused(f"{what}: it yields, and a job has one result; return a list instead")
    first = next(iter(inspect.signature(function).parameters), "")
    within = function.__qualname__.rpartition(".")[0].rpartition(".")[2]
    if first == "self" and within not in {"", "<locals>"}:
        raise Refused(
            f"{what}: a method needs its object, and where the job runs there is none; make it a"
            " function, or put @staticmethod above @app.task"
        )


def name_of(function: Callable[..., Any]) -> str:
    """`module:function`; the script being run goes by the name that an import would give it."""
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        if spec is not None:
            module = spec.name
        elif file is not None:
            module = Path(file).stem
    module = module.removesuffix(".__main__")
    return f"{module}:{function.__qualname__.replace('<locals>.', '')}"


def visible_names(function: Callable[..., Any], frame: FrameType | None) -> dict[str, Any]:
    """The local names that the text annotations of a nested function mention, as they are now."""
    if frame is None or "<locals>" not in getattr(function, "__qualname__", ""):
        return {}
    names: dict[str, Any] = {}
    for annotation in getattr(function, "__annotations__", {}).values():
        if isinstance(annotation, str):
            try:
                mentioned = compile(annotation, "<annotation>", "eval").co_names
            except SyntaxError:
                continue  # told, with the parameter's name, when the annotations are read
            names.update(
                {each: frame.f_locals[each] for each in mentioned if each in frame.f_locals}
            )
    return names


def hints_of(
    function: Callable[..., Any], names: Mapping[str, Any], wanted: Collection[str]
) -> dict[str, Any]:
    """The annotations of these parameters (or "return"), as far as there are any, resolved.

    `names` are the local ones that the function can see. What is not wanted need not be found.
    """
    try:
        return typing.get_type_hints(function, localns=dict(names), include_extras=True)
    except Exception:
        hints: dict[str, Any] = {}
        for parameter, annotation in inspect.get_annotations(function).items():
            if parameter not in wanted:
                continue
            try:
                hints[parameter] = _resolved(function, annotation, names)
            except Exception as error:
                where = "the result" if parameter == "return" else f"parameter {parameter}"
                raise Refused(
                    f"{function.__qualname__}: the annotation {annotation!r} of {where} cannot be"
                    f" resolved ({error}); import or define the name in module"
                    f" {function.__module__}, where a worker can see it"
                ) from None
        return hints


def _resolved(function: Callable[..., Any], annotation: Any, names: Mapping[str, Any]) -> Any:
    holder = type("holder", (), {"__annotations__": {"it": annotation}})
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    return typing.get_type_hints(holder, scope, dict(names), include_extras=True)["it"]


def type_text(annotation: Any) -> str:
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__qualname__.rpartition(">.")[2]
    return re.sub(r"\b(?:\w+\.)+(?:<locals>\.)?(?=\w)", "", str(annotation))


def signature_text(function: Callable[..., Any], leave_out: Collection[str] = ()) -> str:
    """The call as a person writes it: `send(to: str, order: Order) -> str`."""
    shown: list[str] = []
    before: Any = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in leave_out:
            continue
        kind = parameter.kind
        if before == parameter.POSITIONAL_ONLY and kind != before:
            shown.append("/")
        if kind == parameter.KEYWORD_ONLY and before not in {kind, parameter.VAR_POSITIONAL}:
            shown.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(kind, "")
        annotated = parameter.annotation is not parameter.empty
        text = (
            f"{parameter.name}: {type_text(parameter.annotation)}" if annotated else parameter.name
        )
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}" if annotated else f"={parameter.default!r}"
        shown.append(stars + text)
        before = kind
    if before == inspect.Parameter.POSITIONAL_ONLY:
        shown.append("/")
    back = inspect.signature(function).return_annotation
    ending = "" if back is inspect.Signature.empty else f" -> {type_text(back)}"
    return f"{function.__name__}({', '.join(shown)}){ending}"
