"""What a stage's answers rest on is told by its content: an edit is seen, and nothing else is."""

import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.fingerprint import Fingerprint
from curator.api.stage import Stage, stage

MODULE = """
import enum, functools, logging, re, threading
from collections import Counter, OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from pathlib import Path
import numpy as np
from curator.api.stage import Stage, stage

{values}

{code}
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The fingerprint of `it` in a module of this text, imported as a user's own."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(values="", code="", name="own_stages", show="it"):
        (tmp_path / f"{name}.py").write_text(MODULE.format(values=textwrap.dedent(values), code=textwrap.dedent(code)))
        for module in [m for m in sys.modules if m.startswith("own_")]:
            del sys.modules[module]
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        try:
            return getattr(__import__(name), show).fingerprint()
        finally:
            sys.dont_write_bytecode = before

    return make


USES = """
@stage
def it(batch):
    return batch.filter([VALUE == t for t in batch.column("text")])
"""

# Each pair: a value of a module and an edit of it.
EDITS = [
    ("{'the', 'a'}", "{'the', 'an'}"), ("frozenset({'the'})", "frozenset({'a'})"), ("['the', 'a']", "['a', 'the']"),
    ("{'a': 1}", "{'a': 2}"), ("{'ab': 1, 'a': 2}", "{'a': 2, 'ab': 1}"), ("('a', {'b'})", "('a', {'c'})"),
    ("1", "1.0"), ("1", "True"), ("'1'", "b'1'"), ("10 ** 5000", "10 ** 5000 + 1"), ("float('nan')", "0.0"),
    ("re.compile('a+')", "re.compile('a*')"), ("re.compile('a')", "re.compile('a', re.I)"),
    ("np.arange(3)", "np.arange(4)"), ("np.arange(3)", "np.arange(3.0)"), ("np.arange(4)", "np.arange(4).reshape(2, 2)"),
    ("np.array(['a', None], object)", "np.array(['b', None], object)"), ("np.float32(1)", "np.float32(2)"),
    ("Path('a')", "Path('b')"), ("Path('a')", "'a'"), ("{'a': [{'b': {1, 2}}]}", "{'a': [{'b': {1, 3}}]}"),
    ("enum.Enum('E', 'A B').A", "enum.Enum('E', 'A B').B"), ("Counter('aab')", "Counter('abb')"),
    ("defaultdict(list, a=[1])", "defaultdict(list, a=[2])"), ("defaultdict(list)", "defaultdict(set)"),
    ("OrderedDict(a=1)", "{'a': 1}"), ("functools.partial(int, base=2)", "functools.partial(int, base=3)"),
    ("lambda t: t + 1", "lambda t: t + 2"), ("[lambda: 1, lambda: 2]", "[lambda: 2, lambda: 1]"),
    ("{lambda: 1, lambda: 2}", "{lambda: 1, lambda: 3}"), ("range(3)", "range(4)"), ("'abc'.startswith", "'abd'.startswith"),
    ("namedtuple('P', 'x')(1)", "namedtuple('P', 'x')(2)"), ("bytearray(b'a')", "bytearray(b'b')"), ("...", "None"),
    ("'a\\ud800'", "'a\\ud801'"), ("{1: 'a', 'b': 2}", "{1: 'a', 'b': 3}"), ("np.dtype('i4')", "np.dtype('i8')"),
    ("int", "float"), ("re.compile('a').match", "re.compile('b').match"), ("logging.getLogger('a')", "logging.getLogger('b')"),
]


@pytest.mark.parametrize(("before", "after"), EDITS)
def test_an_edited_value_of_the_module_is_another_fingerprint(made, before, after):
    first = made(f"VALUE = {before}", USES)
    assert made(f"OTHER = 5\nVALUE = {before}", USES) == first
    assert made(f"VALUE = {after}", USES) != first


HELPED = """
@dataclass
class Rule:
    word: str
    least: int = WORD_LEAST
    def holds(self, text): return self.word in text and len(text) > METHOD

class Base:
    TABLE = BASE
    def run(self, t): return t

class Part(Base):
    limits = {"x": CLASS}
    @staticmethod
    def still(t): return t + STATIC
    @classmethod
    def made(cls): return CLASSMETHOD
    @property
    def size(self): return PROPERTY
    @functools.cached_property
    def once(self): return CACHED
    def inner(self):
        def deep(): return [x + NESTED for x in "ab"]
        return deep

def helper(t, least=DEFAULT, *, most=KEYWORD):
    return further(t) + LIST

def further(t):
    return helper(t) if t else CALLED

@functools.lru_cache
def kept(t): return REMEMBERED

def decorated(function):
    @functools.wraps(function)
    def around(*given): return function(*given) + AROUND
    return around

@decorated
def wrapped(t): return WRAPPED

class Kind(enum.Enum):
    A = KIND
    B = 2

bound = functools.partial(helper, BOUND)
class Tagged: pass
tagged = Tagged()
tagged.word = STATE
def marked(): return marked.sign
marked.sign = SIGN

@stage
def it(batch):
    return [helper(1), Rule("a"), Part(), kept(1), wrapped(1), Kind.A, bound(), tagged, marked(), (lambda: LAMBDA)()]
"""
NAMES = ["WORD_LEAST", "METHOD", "BASE", "CLASS", "STATIC", "CLASSMETHOD", "PROPERTY", "CACHED", "NESTED", "DEFAULT", "KEYWORD",
         "LIST", "CALLED", "REMEMBERED", "AROUND", "WRAPPED", "KIND", "BOUND", "STATE", "SIGN", "LAMBDA"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_used_by_what_a_function_uses_counts(made, name):
    def values(**edited):
        return "\n".join(f"{n} = {edited.get(n, 1)}" for n in NAMES)

    first = made(values(), HELPED)
    assert made(values(), "\n" + HELPED.replace("def further", "# a word\ndef further")) == first
    assert made(values(**{name: 7}), HELPED) != first


CLASS = """
@dataclass(kw_only=True)
class Mine(Stage):
    words: frozenset = frozenset({"x"})
    WORD = ATTRIBUTE
    batch_size = ROWS
    def setup(self, ctx): self.stop = STOP
    def process(self, batch): return super().process(batch.filter([self.WORD]))

it = Mine()
"""


@pytest.mark.parametrize(("name", "counts"), [("ATTRIBUTE", True), ("STOP", True), ("ROWS", False)])
def test_what_the_methods_of_a_stage_class_use_counts(made, name, counts):
    first = made("STOP = {'a'}; ATTRIBUTE = 1; ROWS = 2", CLASS)
    assert (made(f"STOP = {{'a'}}; ATTRIBUTE = 1; ROWS = 2; {name} = 5", CLASS) != first) is counts
    assert made("STOP = {'a'}; ATTRIBUTE = 1; ROWS = 2", CLASS.replace("batch.filter([", "batch.take([")) != first


def test_another_module_of_the_users_counts_however_it_is_imported(made):
    ways = ["import own_words\n@stage\ndef it(b): return own_words.STOP",
            "from own_words import STOP\n@stage\ndef it(b): return STOP",
            "from own_words import is_stop\n@stage\ndef it(b): return is_stop(b)",
            "@stage\ndef it(b):\n    import own_words\n    return own_words.STOP",
            "@stage\ndef it(b):\n    from own_more import helper\n    return helper(b)",
            "import own_more as more\n@stage\ndef it(b): return more.own_words.is_stop(b)",
            "class It(Stage):\n    def setup(self, ctx):\n        import own_more\n        self.f = own_more.helper\nit = It()"]
    more = "import own_words\ndef helper(t): return own_words.is_stop(t)"
    words = "STOP = {}\nOTHER = {}\ndef is_stop(t): return t in STOP\nit = stage(is_stop)"
    for way in ways:
        found = []
        for stop, other in (("{'a'}", 1), ("{'a'}", 1), ("{'b'}", 1)):
            made(code=words.format(stop, other), name="own_words")
            made(code=more + "\nit = stage(helper)", name="own_more")
            found.append(made(code=way))
        assert found[0] == found[1] != found[2], way
    made(code=words.format("{'b'}", 2), name="own_words")
    assert made(code=ways[0]) == made(code=ways[0])


def test_a_module_of_a_package_counts_that_is_named_only_by_the_package(made, tmp_path):
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").touch()
    code = "@stage\ndef it(b):\n    import own_package\n    return [own_package.words.STOP for _ in b]"
    found = []
    for stop in (1, 1, 2):
        (tmp_path / "own_package" / "words.py").write_text(f"STOP = {stop}\n")
        found.append(made(code=code))
    assert found[0] == found[1] != found[2]


def test_what_is_not_used_does_not_count(made):
    code = "STOP = {1}\n@stage\ndef it(batch):\n    return batch.STOPPED, STOP\n"
    assert made("STOPPED = threading.Lock()\nSEEN = (n for n in 'a')", code) == made("STOPPED = 3", code)


def test_locks_caches_and_loggers_do_not_stand_in_the_way(made):
    code = """
    import weakref
    LOCK, LOCAL, CACHE = threading.Lock(), threading.local(), weakref.WeakValueDictionary()
    LOG = logging.getLogger(__name__)
    @stage
    def it(batch):
        with LOCK: LOG.info("x"), LOCAL, CACHE
        return batch
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert made(code=code) == made(code=code)


UNTOLD = """
class Client:
    def __init__(self): self.words = (w for w in "ab")
    {method}

CLIENT = Client()

@stage
def it(batch):
    return CLIENT.words
"""


def test_what_nothing_tells_counts_as_changed_and_is_warned_of_once_by_its_name(made):
    with pytest.warns(UserWarning, match=r"'it' uses 'CLIENT\.words'.*\(generator\).*every run does.*`fingerprint`") as told:
        first = made(code=UNTOLD.format(method="pass"))
    assert [os.path.basename(w.filename) for w in told] == ["own_stages.py"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert made(code=UNTOLD.format(method="pass")) != first
        by_itself = UNTOLD.format(method="def fingerprint(self): return VALUE")
        assert made("VALUE = 'a'", by_itself) == made("VALUE = 'a'", by_itself) != made("VALUE = 'b'", by_itself)


def test_a_function_may_name_itself_its_stage_and_its_class(made):
    code = """
    class It(Stage):
        def process(self, batch): return super().process(batch), It, it, RING, other
    RING = [1]
    RING.append({"ring": RING})
    SET = set()
    @stage
    def other(batch): return it, other, SET
    def member(): return SET
    SET |= {member, lambda: member}
    it = It()
    """
    assert made(code=code) == made(code=code) != made(code=code.replace("[1]", "[2]"))


def test_a_long_chain_of_values_ends_in_a_warning_and_no_error(made):
    code = "CHAIN = []\nfor _ in range(100_000): CHAIN = [CHAIN]\n@stage\ndef it(batch): return CHAIN\n"
    with pytest.warns(UserWarning, match="nested too deeply"):
        made(code=code)


def test_a_long_chain_of_functions_is_followed_to_its_end(made):
    links = "".join(f"def f{n}(): return f{n + 1}()\n" for n in range(3000))
    code = links + "def f3000(): return {}\n@stage\ndef it(batch): return f0()\n"
    assert made(code=code.format(1)) == made(code=code.format(1)) != made(code=code.format(2))


@pytest.mark.slow
def test_a_list_of_a_million_words_is_told_fast():
    words = [f"word{n}" for n in range(1_000_000)]
    for value in (words, set(words), dict.fromkeys(words, 1)):
        began = time.process_time()
        Fingerprint().of(value)
        assert time.process_time() - began < 10


def test_installed_code_is_told_by_its_version_and_the_core_by_its_name(made, monkeypatch):
    import hypothesis

    code = "import hypothesis, curator\n@stage\ndef it(batch): return {}"
    first = [made(code=code.format(used)) for used in ("hypothesis.given", "curator.Batch")]
    monkeypatch.setattr("importlib.metadata.version", lambda name: "another")
    monkeypatch.setattr(hypothesis, "__version__", "another")
    from curator.api import own_code
    own_code.version_of.cache_clear()
    second = [made(code=code.format(used)) for used in ("hypothesis.given", "curator.Batch")]
    own_code.version_of.cache_clear()
    assert (first[0] == second[0], first[1] == second[1]) == (False, True)


SCRIPT = """
import re, sys
from curator.api.stage import Stage, stage
WORDS = {"alpha", "beta", "gamma", "delta"}
NESTED = {"a": frozenset({("x", 1), ("y", 2), ("z", None)}), "b": [{1.5, "c", b"d", None}], "f": {len, str, re.compile}}
class Thing:
    def __init__(self): self.words = WORDS
THINGS = {Thing, WORDS.__contains__.__class__}
@stage
def keep(batch): return batch.filter([t in WORDS and t not in NESTED and t in {"p", "q", "r"} for t in batch]), Thing(), THINGS
class Mine(Stage):
    stop = WORDS
    def process(self, batch): return keep, WORDS, NESTED
print(keep.fingerprint(), Mine().fingerprint())
"""


def test_every_process_tells_the_same_whatever_the_seed_of_its_hashes(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    answers = {subprocess.run([sys.executable, str(tmp_path / "script.py")], env={**os.environ, "PYTHONHASHSEED": seed},
                              capture_output=True, text=True, check=True).stdout for seed in ("1", "2", "3")}
    assert len(answers) == 1
    assert len(set(answers.pop().split())) == 2


PLAIN = (st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4) | st.binary(max_size=4))
HASHED = st.recursive(PLAIN, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=4), max_leaves=6)
VALUES = st.recursive(HASHED, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(HASHED, inner, max_size=4) |
                      st.sets(HASHED, max_size=4) | st.tuples(inner, inner), max_leaves=12)


def exact(value):
    """A form that is equal only where value and type are, in every depth."""
    if isinstance(value, (set, frozenset)):
        return ("set", frozenset(map(exact, value)))
    if isinstance(value, dict):
        return ("dict", frozenset((exact(k), exact(v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(map(exact, value)))
    return (type(value), repr(value))


def again(value):
    """The same built anew, everything without an order the other way round."""
    if isinstance(value, (set, frozenset)):
        return type(value)(reversed([again(v) for v in value]))
    if isinstance(value, dict):
        return {again(k): again(v) for k, v in reversed(value.items())}
    if isinstance(value, (list, tuple)):
        return type(value)(map(again, value))
    return value


@given(VALUES)
def test_a_value_built_anew_is_told_the_same(value):
    told = Fingerprint().of(value)
    assert Fingerprint().of(again(value)) == told
    assert Fingerprint().of(cloudpickle.loads(cloudpickle.dumps(value))) == told


@given(VALUES, VALUES)
def test_values_are_told_apart_where_they_or_their_types_differ(one, other):
    assert (Fingerprint().of(one) == Fingerprint().of(other)) == (exact(one) == exact(other))
    assert Fingerprint().of([one, other]) != Fingerprint().of([one, [other]])


@given(st.lists(VALUES, max_size=3), VALUES)
def test_what_a_function_closes_over_is_told_by_its_content(held, other):
    def make(held):
        @stage
        def it(batch, more=held):
            return held
        return it

    assert make(held).fingerprint() == make(list(held)).fingerprint()
    assert make(held).fingerprint() != make([*held, other]).fingerprint()
    travelled = cloudpickle.loads(cloudpickle.dumps(make(held)))
    assert travelled.fingerprint() == make(held).fingerprint()


def test_an_open_stage_of_a_notebook_is_told_by_what_its_cell_says_now():
    def cell(words):
        names = {"__name__": "__main__", "Stage": Stage, "np": np, "threading": threading}
        exec(f"WORDS = {words}\nclass Mine(Stage):\n    def process(self, b): return WORDS, np.sort(b), Mine\n", names)
        return names["Mine"]().fingerprint()

    assert cell("{'a'}") == cell("{'a'}") != cell("{'b'}")
