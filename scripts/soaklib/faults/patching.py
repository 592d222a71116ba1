"""How a function of a running program comes to raise once, and to be itself again.

What is exchanged is the function's code and not the function: so it reaches whoever holds it, as
bound method, partial, property or callback, and however long ago it was handed out. The code that
takes its place is of the same kind (plain, generator, coroutine, asynchronous generator), so that
a coroutine raises when it is awaited and a generator when it is iterated.

A function inside another one is made anew whenever the outer one runs. So it is exchanged among
the outer one's constants as well.

Invariants:

- A fault is raised once. Whoever has called the function before it was itself again, and begins
  to run it only then, runs the original.
- After that all functions have the code objects that they had, these very ones.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

_BODIES = {
    0: "return stub_call(*stub_args, **stub_named)",
    inspect.CO_GENERATOR: "return (yield from stub_call(*stub_args, **stub_named))",
    inspect.CO_COROUTINE: "return await stub_call(*stub_args, **stub_named)",
    inspect.CO_ASYNC_GENERATOR: "async for _ in stub_call(*stub_args, **stub_named): yield _",
}
_LISTING = 1.0  # seconds that it may take to look at all objects
_PARTS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # codes that are no functions
_KINDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# What the function uses of those around it is named as well: a code fits a function only if it
# has as many free variables.
_KEY, _NUMBER = 900_000_001, 900_000_002  # stand for others among a stub's constants
_TEMPLATE = """
def outer({free}):
    {word} stub(*stub_args, **stub_named):
        from {module} import meet
        stub_call, stub_fault = meet({key}, {number})
        if stub_fault is not None:
            raise stub_fault
        {body}
        {used}
    return stub
"""


class InjectedError(RuntimeError):
    """The fault that is thrown; nobody expects it."""


def functions(package: str) -> list[FunctionType]:
    """Return all functions of a package that exist at present, however hidden."""
    # No other thread may go on while all objects are listed: a tuple that it makes from what an
    # iterator yields can be made by Python only while nobody else refers to it.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_LISTING)
    try:
        time.sleep(2 * interval)  # who waits already for its turn waits by the old interval
        return [
            one
            for one in gc.get_objects()
            if type(one) is FunctionType
            and belongs(one.__globals__.get("__name__"), package)
            and not one.__code__.co_filename.startswith("<")  # made by dataclasses and the like
        ]
    finally:
        sys.setswitchinterval(interval)


def belongs(module: object, package: str) -> bool:
    """Whether that is the name of a module of a package."""
    return isinstance(module, str) and (module == package or module.startswith(f"{package}."))


def name_of(module: str, code: CodeType) -> str:
    """What a function is called here; the line tells those of one name apart."""
    return f"{module}.{code.co_qualname}:{code.co_firstlineno}"


def find(name: str, package: str) -> CodeType | None:
    """Return the code of a function that is called so, if there is one."""
    for function in functions(package):
        module = function.__globals__["__name__"]
        if name.startswith(module):
            for code in codes(function.__code__):
                if name == name_of(module, code):
                    return code
    return None


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code, and those of all functions in it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType) and one.co_name not in _PARTS:
            yield from codes(one)


class Patch:
    """One fault in one function.

    Args:
        code: of the function.
        package: whose functions are looked through for it.
        fault: makes what is raised.
        seen: called in the thread that raises it, just before.
    """

    def __init__(
        self,
        code: CodeType,
        package: str,
        fault: Callable[[], BaseException],
        seen: Callable[[], object] = lambda: None,
    ) -> None:
        self.code = code
        self.fired = 0
        self._package = package
        self._fault, self._seen = fault, seen
        self._lock = threading.RLock()
        self._armed = True
        self._stubs: dict[CodeType, CodeType] = {}  # what was put in -> what was there
        self._functions: list[FunctionType | None] = []
        self._key = _register(self)
        with self._lock:
            for function in functions(package):
                self._arm(function)

    @property
    def reach(self) -> int:
        """How many functions have been exchanged, outer ones included."""
        return len(self._stubs)

    def _arm(self, function: FunctionType) -> None:
        there = function.__code__
        if there is self.code:
            put = self._stub(function)
        elif (put := self._within(there)) is there:
            return
        self._stubs[put] = there
        function.__code__ = put

    def _stub(self, function: FunctionType | None) -> CodeType:
        self._functions.append(function)
        return make_stub(self.code, self._key, len(self._functions) - 1)

    def _within(self, code: CodeType) -> CodeType:
        """Return a code in whose constants, at any depth, the stub is in place of the function."""
        constants = list(code.co_consts)
        changed = False
        for at, one in enumerate(constants):
            if not isinstance(one, CodeType):
                continue
            put = self._stub(None) if one is self.code else self._within(one)
            if put is not one:
                constants[at], changed = put, True
                self._stubs[put] = one
        return code.replace(co_consts=tuple(constants)) if changed else code

    def meet(self, number: int) -> tuple[FunctionType | None, BaseException | None]:
        """Return what a stub has to do: call a function, or raise."""
        with self._lock:
            function = self._functions[number]
            if function is not None and not self._armed:
                return function, None
            # A function of which only the stub is known has nothing else to do than to raise.
            self.fired += 1
            self.disarm()
        self._seen()
        return None, self._fault()

    def disarm(self) -> None:
        """Let all functions be themselves again."""
        with self._lock:
            if not self._armed:
                return
            self._armed = False
            for function in functions(self._package):
                there = self._stubs.get(function.__code__)
                if there is not None:
                    function.__code__ = there


class Watch:
    """Notes which functions of a package are called, at no cost but for the first call of each."""

    def __init__(self, package: str) -> None:
        self._lock = threading.RLock()
        self._called: set[str] = set()
        self._functions: list[tuple[FunctionType, CodeType]] = []
        key = _register(self)
        with self._lock:
            for number, function in enumerate(functions(package)):
                self._functions.append((function, function.__code__))
                function.__code__ = make_stub(function.__code__, key, number)

    def meet(self, number: int) -> tuple[FunctionType, None]:
        """Take note of a call, and let the function be called."""
        function, code = self._functions[number]
        with self._lock:
            function.__code__ = code
            # Those inside of it may not live long enough to be seen.
            module = function.__globals__["__name__"]
            self._called.update(name_of(module, one) for one in codes(code))
        return function, None

    def end(self) -> list[str]:
        """Let all functions be themselves again; return the names of those that were called."""
        with self._lock:
            for function, code in self._functions:
                function.__code__ = code
            return sorted(self._called)


def make_stub(code: CodeType, key: int, number: int) -> CodeType:
    """Return a code of the kind of ``code``, with as many free variables, that meets a patch."""
    stub = _draw_stub(code.co_flags & _KINDS, code.co_freevars)
    put = {_KEY: key, _NUMBER: number}
    return stub.replace(
        co_consts=tuple(put.get(one, one) if type(one) is int else one for one in stub.co_consts),
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
    )


@functools.cache
def _draw_stub(kind: int, free: tuple[str, ...]) -> CodeType:
    text = _TEMPLATE.format(
        free=", ".join(free),
        used=", ".join(free) or "pass",
        word="def" if kind in (0, inspect.CO_GENERATOR) else "async def",
        module=__name__,
        key=_KEY,
        number=_NUMBER,
        body=_BODIES[kind],
    )
    scope: dict[str, Any] = {}
    exec(text, scope)
    return next(one for one in scope["outer"].__code__.co_consts if isinstance(one, CodeType))


_patches: list[Patch | Watch] = []


def _register(patch: Patch | Watch) -> int:
    _patches.append(patch)
    return len(_patches) - 1


def meet(key: int, number: int) -> tuple[FunctionType | None, BaseException | None]:
    """Return what a stub has to do; see :meth:`Patch.meet`."""
    return _patches[key].meet(number)
