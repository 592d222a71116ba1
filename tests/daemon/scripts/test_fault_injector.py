"""Does one fault come out of the function that it is put in, once, and nothing else change?"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
import trio

from soaklib.faults.patching import InjectedError, Patch, Watch, codes, find, functions, name_of
from tests.daemons import ROOT

SCRIPTS = ROOT / "scripts"
SOURCE = """
import functools

def plain(a, b=2, *, c=3):
    return a, b, c

def generate(n):
    yield from range(n)

async def wait(n):
    return n

async def stream(n):
    for one in range(n):
        yield one

def counter():
    count = 0
    def add(step=1):
        nonlocal count
        count += step
        return count
    return add

def waiting():
    here = 1
    async def inner():
        return here
    return inner

class Base:
    def method(self):
        return "base"

class Thing(Base):
    def method(self):
        return "thing of " + super().method()

    @property
    def size(self):
        return 1

    @size.setter
    def size(self, value):
        self.set = value

    @classmethod
    def of_class(cls):
        return cls.__name__

    @staticmethod
    def of_nobody(a):
        return a

    @functools.cached_property
    def kept(self):
        return 5

def call_often(times):
    return [plain(n)[0] for n in range(times)]

async def turn():
    await wait(1)
    return await wait(2)
"""


_numbers = itertools.count()


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    name = f"sample{next(_numbers)}"  # or functions of the test before might be found
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(name)
    del sys.modules[name]


def code_of(module: ModuleType, qualname: str, place: int = 0) -> CodeType:
    """Return the code of a function that is called so, the first one or a later one."""
    there = {
        id(code): code
        for function in functions(module.__name__)
        for code in codes(function.__code__)
        if code.co_qualname == qualname
    }
    return sorted(there.values(), key=lambda code: code.co_firstlineno)[place]


def put(module: ModuleType, qualname: str, place: int = 0) -> Patch:
    return Patch(code_of(module, qualname, place), module.__name__, InjectedError)


def all_codes(module: ModuleType) -> dict[FunctionType, CodeType]:
    return {one: one.__code__ for one in functions(module.__name__)}


def collect(stream: Any) -> Callable[[], list[int]]:
    async def all_of() -> list[int]:
        return [one async for one in stream(3)]

    return functools.partial(trio.run, all_of)


CALLS: dict[str, Callable[[ModuleType], tuple[Callable[[], Any], Any]]] = {
    "plain": lambda m: (lambda: m.plain(1, c=4), (1, 2, 4)),
    "generate": lambda m: (lambda: list(m.generate(3)), [0, 1, 2]),
    "wait": lambda m: (lambda: trio.run(m.wait, 5), 5),
    "stream": lambda m: (collect(m.stream), [0, 1, 2]),
    "counter": lambda m: (lambda: m.counter()(2), 2),
    "Thing.method": lambda m: (m.Thing().method, "thing of base"),
    "Base.method": lambda m: (m.Thing().method, "thing of base"),
    "Thing.size": lambda m: (lambda: m.Thing().size, 1),
    "Thing.of_class": lambda m: (m.Thing.of_class, "Thing"),
    "Thing.of_nobody": lambda m: (functools.partial(m.Thing.of_nobody, 7), 7),
    "Thing.kept": lambda m: (lambda: m.Thing().kept, 5),
    "counter.<locals>.add": lambda m: (m.counter(), 1),
    "waiting.<locals>.inner": lambda m: (functools.partial(trio.run, m.waiting()), 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_of_any_kind_raises_once_and_is_itself_again(
    sample: ModuleType, name: str
) -> None:
    call, due = CALLS[name](sample)  # who has it already, has it as it is
    before = all_codes(sample)
    patch = put(sample, name)
    with pytest.raises(InjectedError):
        call()
    assert patch.fired == 1
    assert call() == due
    assert patch.fired == 1
    assert all(one.__code__ is code for one, code in before.items())


def test_calling_a_coroutine_or_a_generator_does_not_raise_but_running_it_does(
    sample: ModuleType,
) -> None:
    for name in ("generate", "wait", "stream"):
        original = getattr(sample, name).__code__
        patch = put(sample, name)
        kinds = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
        assert getattr(sample, name).__code__.co_flags & kinds == original.co_flags & kinds
        patch.disarm()
    patch = put(sample, "generate")
    generator = sample.generate(3)
    assert not patch.fired
    with pytest.raises(InjectedError):
        next(generator)


def test_the_second_of_two_that_were_called_before_either_ran_runs_the_original(
    sample: ModuleType,
) -> None:
    put(sample, "generate")
    first, second = sample.generate(3), sample.generate(2)
    with pytest.raises(InjectedError):
        list(first)
    assert list(second) == [0, 1]


def test_a_setter_is_told_from_the_getter_of_the_same_name(sample: ModuleType) -> None:
    thing = sample.Thing()
    put(sample, "Thing.size", place=1)
    assert thing.size == 1
    with pytest.raises(InjectedError):
        thing.size = 2
    thing.size = 3
    assert thing.set == 3


def test_a_function_that_is_made_while_it_is_armed_raises_too_and_is_itself_afterwards(
    sample: ModuleType,
) -> None:
    patch = put(sample, "counter.<locals>.add")
    add = sample.counter()
    with pytest.raises(InjectedError):
        add()
    assert [add(), add(2), sample.counter()()] == [1, 3, 1]
    assert patch.fired == 1


def test_the_fault_tells_the_place_of_the_function(sample: ModuleType) -> None:
    put(sample, "Thing.method")
    with pytest.raises(InjectedError) as caught:
        sample.Thing().method()
    last = caught.traceback[-1]
    assert (last.name, Path(str(last.path)).parent.name) == ("method", sample.__name__)


def test_code_that_runs_hot_calls_the_one_that_was_put_in(sample: ModuleType) -> None:
    # After some calls the interpreter enters a function without looking it up.
    sample.call_often(1_000)
    put(sample, "plain")
    with pytest.raises(InjectedError):
        sample.call_often(1)
    assert sample.call_often(3) == [0, 1, 2]


def test_what_is_disarmed_never_raises(sample: ModuleType) -> None:
    before = all_codes(sample)
    patch = put(sample, "plain")
    patch.disarm()
    assert sample.plain(1) == (1, 2, 3)
    assert patch.fired == 0
    assert all(one.__code__ is code for one, code in before.items())


def test_of_many_threads_one_meets_the_fault(sample: ModuleType) -> None:
    patch = put(sample, "plain")
    start, faults = threading.Barrier(8), list[BaseException]()

    def call() -> None:
        start.wait()
        try:
            sample.plain(1)
        except InjectedError as error:
            faults.append(error)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(faults), patch.fired) == (1, 1)


def test_a_function_is_found_again_by_its_name(sample: ModuleType) -> None:
    package = sample.__name__
    names = {name_of(package, code) for one in functions(package) for code in codes(one.__code__)}
    assert len([name for name in names if "Thing.size" in name]) == 2
    for name in names:
        code = find(name, package)
        assert code is not None
        assert name_of(package, code) == name
    assert find(f"{package}.nobody:1", package) is None


def test_watched_is_what_is_called_and_all_is_as_it_was_after_that(sample: ModuleType) -> None:
    before = all_codes(sample)
    going_on = sample.generate(3)
    next(going_on)
    add = sample.counter()
    watch = Watch(sample.__name__)
    next(going_on)
    assert trio.run(sample.turn) == 2
    assert sample.call_often(3) == [0, 1, 2]
    assert (add(), sample.Thing().method()) == (1, "thing of base")
    assert [name.split(".", 1)[1].partition(":")[0] for name in watch.end()] == [
        "Base.method",
        "Thing.method",
        "call_often",
        "counter.<locals>.add",
        "plain",
        "turn",
        "wait",
    ]
    assert all(one.__code__ is code for one, code in before.items())


def test_with_a_function_that_is_called_those_inside_of_it_are_told(sample: ModuleType) -> None:
    watch = Watch(sample.__name__)
    sample.waiting()
    assert [name.split(".", 1)[1].partition(":")[0] for name in watch.end()] == [
        "waiting.<locals>.inner",
        "waiting",
    ]


# In a program of its own

PROGRAM = """
import sys, time
from PACKAGE import plain, generate

def main():
    word = "ready"
    while True:
        try:
            plain(1)
            if word:
                print(word, flush=True)
            word = ""
        except RuntimeError as error:
            print(error, flush=True)
            word = "called again"
        time.sleep(0.01)

if __name__ == "__main__":
    main()
"""


def test_a_program_is_told_over_a_socket_which_function_has_to_raise(
    sample: ModuleType, tmp_path: Path
) -> None:
    package = sample.__name__
    program = PROGRAM.replace("PACKAGE", package)
    (tmp_path / package / "__main__.py").write_text(program)
    path = str(tmp_path / "control")
    command = [sys.executable, "-c", "from soaklib.faults.injector import main; main()"]
    with subprocess.Popen(
        [*command, path, package],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": f"{SCRIPTS}:{tmp_path}"},
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            with socket.socket(socket.AF_UNIX) as control:
                control.connect(f"{path}.{process.pid}")
                file = control.makefile("rw")

                def ask(*words: object) -> Any:
                    file.write(json.dumps(words) + "\n")
                    file.flush()
                    return json.loads(file.readline())

                ask("watch")
                plain = name_of(package, sample.plain.__code__)
                assert ask("arm", plain, 30) == {"there": True, "fired": 1}
                assert process.stdout.readline() == f"injected into {plain}\n"
                assert process.stdout.readline() == "called again\n"
                assert ask("called") == [plain]
                unused = name_of(package, sample.generate.__code__)
                assert ask("arm", unused, 0.05) == {"there": True, "fired": 0}
                assert ask("disarm") == 0
                assert ask("arm", f"{package}.nobody:1", 30) == {"there": False, "fired": 0}
        finally:
            process.kill()
