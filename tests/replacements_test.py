# Tags: versions, old_version
# Not on GPUs: graphs, names and libraries
"""The library's replacements in TensorFlow: their table, and undoing them beside other libraries' ones."""

import functools
import sys
import types
from typing import Any

import pytest
import tensorflow as tf

import harness
import sparse_operation_kit as sok
import sparse_operation_kit.deeprec  # noqa: F401 - registers what it and the feature columns replace
from sparse_operation_kit import compat
from sparse_operation_kit.changes import replacements, reversible_change
from sparse_operation_kit.changes.replacement_table import (
    OF_EMBEDDING_VARIABLES,
    How,
    Part,
    Replacement,
)

_V1_OPTIMIZER = tf.compat.v1.train.Optimizer


@pytest.fixture(autouse=True)
def _tensorflow_as_it_was():
    replacements.uninstall(*replacements.parts())
    before = _watched()
    yield
    replacements.uninstall(*replacements.parts())
    assert _watched() == before


def _watched():
    """The attributes in the owners' own `__dict__` for the table's entries, by owner and name."""
    return {
        (id(owner), entry.attribute): vars(owner).get(entry.attribute)
        for entry in replacements.entries()
        if entry.how in (How.WRAPPED, How.ADDED) and entry.is_needed(compat.VERSION)
        for owner in entry.owners()
    }


class Theirs:
    """Another library that wraps a function and counts its calls."""

    def __init__(self, owner, attribute):
        self.calls = 0
        self._owner, self._attribute = owner, attribute
        self._before = inside = getattr(owner, attribute)

        @functools.wraps(inside)
        def wrapper(*args, **kwargs):
            self.calls += 1
            return inside(*args, **kwargs)

        self.wrapper = wrapper
        setattr(owner, attribute, wrapper)

    def is_in_place(self):
        return vars(self._owner)[self._attribute] is self.wrapper

    def take_away(self):
        setattr(self._owner, self._attribute, self._before)


class _Base:
    def inherited(self, value):
        """Returns the value."""
        return [value]


class _Owner(_Base):
    def method(self, value, *, twice=False):
        """Returns the value."""
        return [value, value] if twice else [value]

    @staticmethod
    def static(value):
        return [value]


def _adding_ours(original):
    def wrapper(*args, **kwargs):
        return [*original(*args, **kwargs), "ours"]

    return wrapper


@pytest.fixture
def owner():
    """A new class for each test."""
    return type("_Copy", (_Base,), {name: vars(_Owner)[name] for name in ("method", "static")})


def test_a_wrapper_is_there_until_it_is_undone(owner):
    before = dict(vars(owner))
    change = reversible_change.Wrapper(owner, "method", _adding_ours)
    assert owner().method(1) == [1, "ours"]
    change.undo()
    assert dict(vars(owner)) == before


def test_an_inherited_method_is_inherited_again(owner):
    change = reversible_change.Wrapper(owner, "inherited", _adding_ours)
    assert owner().inherited(1) == [1, "ours"]
    assert _Base().inherited(1) == [1]
    change.undo()
    assert "inherited" not in vars(owner)
    assert owner().inherited(1) == [1]


def test_a_static_method_stays_one(owner):
    change = reversible_change.Wrapper(owner, "static", _adding_ours)
    assert owner.static(1) == owner().static(1) == [1, "ours"]
    change.undo()
    assert owner.static(1) == owner().static(1) == [1]


def test_a_wrapper_has_the_signature_that_it_declares(owner):
    def wrap(original):
        def wrapper(self, value, more=None):
            return original(self, value)

        return wrapper

    reversible_change.Wrapper(owner, "method", wrap)
    from tensorflow.python.util import tf_inspect

    # Keras uses this function.
    assert tf_inspect.getfullargspec(owner.method).args == ["self", "value", "more"]


@pytest.mark.parametrize("attribute", ["method", "inherited"])
def test_undoing_leaves_what_another_library_has_put_around(owner, attribute):
    change = reversible_change.Wrapper(owner, attribute, _adding_ours)
    theirs = Theirs(owner, attribute)
    assert getattr(owner(), attribute)(1) == [1, "ours"]
    change.undo()
    assert theirs.is_in_place()
    assert getattr(owner(), attribute)(2) == [2]
    assert theirs.calls == 2


def test_what_another_library_put_there_before_is_called_and_comes_back(owner):
    theirs = Theirs(owner, "method")
    change = reversible_change.Wrapper(owner, "method", _adding_ours)
    assert owner().method(1) == [1, "ours"]
    change.undo()
    assert theirs.is_in_place()
    assert owner().method(1) == [1]
    assert theirs.calls == 2


def test_redoing_below_another_library_does_not_wrap_twice(owner):
    change = reversible_change.Wrapper(owner, "method", _adding_ours)
    theirs = Theirs(owner, "method")
    for _ in range(3):
        change.undo()
        assert owner().method(1) == [1]
        assert change.redo()
        assert owner().method(1) == [1, "ours"]
        assert theirs.is_in_place()


def test_another_library_may_leave_before_and_after(owner):
    change = reversible_change.Wrapper(owner, "method", _adding_ours)
    ours = vars(owner)["method"]
    theirs = Theirs(owner, "method")
    change.undo()
    theirs.take_away()
    assert vars(owner)["method"] is ours
    assert owner().method(1) == [1]
    assert change.redo()
    assert owner().method(1) == [1, "ours"]
    change.undo()
    assert vars(owner)["method"] is vars(_Owner)["method"]


def test_redoing_is_refused_where_nothing_is_left(owner):
    change = reversible_change.Wrapper(owner, "method", _adding_ours)
    change.undo()
    assert not change.redo()
    assert owner().method(1) == [1]
    change = reversible_change.Wrapper(owner, "method", _adding_ours)
    Theirs(owner, "method")
    change.undo()
    Theirs(owner, "method")  # it is unknown whether their wrapper calls ours
    assert not change.redo()


def test_a_name_that_another_library_has_replaced_stays():
    module: Any = types.ModuleType("module")
    change = reversible_change.AddedName(module, "name", print)
    module.name = theirs = object()
    change.undo()
    assert module.name is theirs


def test_a_module_that_another_library_has_replaced_stays(monkeypatch):
    name = "sok_replacements_test_module"
    change = reversible_change.AddedModule(None, name, types.ModuleType(name))
    theirs = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, theirs)
    change.undo()
    assert sys.modules[name] is theirs


def _train_a_table():
    with harness.graph_and_session() as session:
        table = sok.EmbeddingVariable(name="table", dim=2, initializer=1.0)
        rows = tf.nn.embedding_lookup(table, [3])
        step = tf.compat.v1.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(rows))
        harness.initialize(session)
        session.run(step)
        return session.run(rows).tolist()


def _train_an_ordinary_variable():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", initializer=1.0)
        step = tf.compat.v1.train.GradientDescentOptimizer(0.5).minimize(variable)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(step)
        return session.run(variable)


def test_another_library_around_apply_gradients_works_with_and_without_ours():
    replacements.install(*OF_EMBEDDING_VARIABLES)
    theirs = Theirs(_V1_OPTIMIZER, "apply_gradients")
    try:
        assert _train_a_table() == [[0.5, 0.5]]
        assert theirs.calls == 1
        replacements.uninstall(Part.OPTIMIZERS)
        assert theirs.is_in_place()
        assert _train_an_ordinary_variable() == 0.5
        assert theirs.calls == 2
        # The first embedding variable installs our wrappers again: once, and inside theirs.
        assert _train_a_table() == [[0.5, 0.5]]
        assert theirs.is_in_place() and theirs.calls == 3
    finally:
        theirs.take_away()


def test_another_library_around_savers_works_after_uninstalling(tmp_path):
    saver = tf.compat.v1.train.Saver
    replacements.install(*OF_EMBEDDING_VARIABLES)
    theirs = Theirs(saver, "save")
    try:
        replacements.uninstall(*OF_EMBEDDING_VARIABLES)
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tf.compat.v1.get_variable("v", initializer=1.0)
            session.run(tf.compat.v1.global_variables_initializer())
            prefix = saver().save(session, str(tmp_path / "model"))
        assert tf.train.list_variables(prefix) == [("v", [])]
        assert theirs.is_in_place() and theirs.calls == 1
    finally:
        theirs.take_away()
    # They restore our wrapper, which they had wrapped. Uninstalling again removes it.
    replacements.install(Part.SAVERS)


def test_a_part_stays_while_a_user_needs_it():
    before = _watched()
    part = Part.OPTIMIZERS
    replacements.install(part, user="one")
    during = _watched()
    assert during != before
    replacements.install(part, user="one")  # a user is counted once
    replacements.install(part, user="other")
    replacements.uninstall(part, user="one")
    replacements.uninstall(part, user="none")
    assert replacements.is_installed(part) and _watched() == during
    replacements.uninstall(part, user="other")
    assert not replacements.is_installed(part) and _watched() == before


def test_a_part_that_is_uninstalled_from_all_has_no_users():
    part = Part.OPTIMIZERS
    replacements.install(part, user="one")
    replacements.install(part)
    replacements.uninstall(part, user="one")
    assert replacements.is_installed(part)
    replacements.install(part, user="one")
    replacements.uninstall(part)
    assert not replacements.is_installed(part)
    replacements.install(part, user="other")
    replacements.uninstall(part, user="other")
    assert not replacements.is_installed(part)


@pytest.mark.parametrize("part", replacements.parts())
def test_installing_changes_what_the_entries_name_and_uninstalling_restores_it(part):
    before = _watched()
    replacements.install(part)
    assert replacements.is_installed(part)
    during = _watched()
    for entry in replacements.entries():
        if entry.how not in (How.WRAPPED, How.ADDED) or not entry.is_needed(compat.VERSION):
            continue
        for owner in entry.owners():
            key = (id(owner), entry.attribute)
            assert (during[key] is not before[key]) == (entry.part is part), entry.name
    replacements.install(part)
    assert _watched() == during
    replacements.uninstall(part)
    assert not replacements.is_installed(part)
    assert _watched() == before


def test_installing_is_all_or_nothing(monkeypatch):
    before = _watched()
    of_savers = [entry for entry in replacements.entries() if entry.part is Part.SAVERS]
    # An entry may be of another version, or of a module that is not imported.
    last = [one.name for one in of_savers if one.is_needed(compat.VERSION) and one.owners()][-1]
    monkeypatch.delitem(replacements._implementations, last)
    with pytest.raises(RuntimeError, match=f"{last}: no imported module"):
        replacements.install(Part.SAVERS)
    assert not replacements.is_installed(Part.SAVERS)
    assert _watched() == before


def test_every_entry_has_an_implementation_and_no_other_has_one():
    assert sorted(replacements._implementations) == sorted(entry.name for entry in replacements.entries())


def test_implementations_are_of_the_table_and_there_is_one():
    with pytest.raises(KeyError, match="is not in the table"):
        replacements.implements("tf.nn.relu")(lambda original: original)
    with pytest.raises(ValueError, match="has two implementations"):
        replacements.implements("tf.GradientTape.jacobian")(lambda original: original)


def test_names_of_entries_are_where_tensorflow_has_them():
    for entry in replacements.entries():
        owner = entry.name.rpartition(".")[0]
        assert entry.how == How.ADDED_MODULE or owner, entry.name
        if entry.is_needed(compat.VERSION) and entry.how in (How.WRAPPED, How.DISPATCHED):
            assert all(callable(getattr(owner, entry.attribute)) for owner in entry.owners()), entry.name


@pytest.mark.parametrize(
    ("since", "before", "needed_by"),
    [
        ((2, 15), None, [(2, 15), (2, 21), (3, 0)]),
        ((1, 15), (2, 0), [(1, 15)]),
        ((2, 15), (2, 16), [(2, 15)]),
    ],
)
def test_versions_that_need_an_entry(since, before, needed_by):
    entry = Replacement("tf.name", "Because.", Part.SAVERS, since=since, before=before)
    versions = [(1, 14), (1, 15), (2, 15), (2, 21), (3, 0)]
    assert [version for version in versions if entry.is_needed(version)] == needed_by
